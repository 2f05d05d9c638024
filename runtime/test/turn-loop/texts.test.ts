import { describe, expect, it } from 'vitest'
import {
  classifyText,
  DEFAULT_INTENT_ONLY_NARRATION_RECOVERY_INSTRUCTION,
  DEFAULT_NON_PROGRESSING_TEXT_RECOVERY_INSTRUCTION,
  DEFAULT_TOOL_VALIDATION_RECOVERY_INSTRUCTION,
  parseToolValidationFailureArtifact,
  runTurnLoop,
} from '../../index.ts'
import { call, chat, text, times } from './chat.ts'

const promises = [
  'I will check the file.',
  "I'll run the tests",
  'I’ll now read it',
  'Let me search for it.',
  'Okay, I am going to open it',
  "First, I'm going to inspect the log",
  'going to fetch the page',
  "I'll save the note.",
]
const promisesOfOtherLanguages = [
  'Ich sehe gleich nach.',
  'Voy a revisar el archivo.',
  'Je vais lire le fichier.',
  'これからファイルを確認します。',
  '我先看一下文件。',
  'سأتحقق من الملف الآن.',
  'Checking the file now.',
]
const answers = ['The file holds 7.', 'Done: I will check nothing more.', 'let me know!']

describe('a text of the model', () => {
  it.each(promises)('is a promise where evidence is needed: %s [S2.27]', (content) => {
    expect(classifyText(content, true)).toBe('intent_only_narration')
    expect(classifyText(content, true, true)).toBe('intent_only_narration')
    expect(classifyText(content, false)).toBe('verified_final_response')
  })

  it.each(answers)('is an answer where something was done, and none before: %s [S2.27]', (content) => {
    expect(classifyText(content, true, true)).toBe('verified_final_response')
    expect(classifyText(content, true)).toBe('non_progressing')
  })

  it.each(promisesOfOtherLanguages)(
    'is no answer before a call, in any language: %s [S2.27]',
    async (content) => {
      const replies = [text(content), call('look'), text('7')]
      const { options, executed } = chat(replies, {
        requiresActionEvidence: () => true,
        rejectedTextRetryLimit: 1,
      })
      const result = await runTurnLoop(options)
      expect(result).toMatchObject({ reason: 'text_response', state: { finalText: '7' } })
      expect(result.classifications.map(({ classification }) => classification)).toEqual([
        'non_progressing',
        'verified_final_response',
      ])
      expect(executed).toEqual(['look'])
    },
  )

  it('needs evidence of its own after an accepted text, or of the loop before this one [S2.27, S2.25]', async () => {
    const evidence: boolean[] = []
    const setting = {
      requiresActionEvidence: () => true,
      onClassification: ({ hasActionEvidence }: { hasActionEvidence: boolean }) =>
        void evidence.push(hasActionEvidence),
    }
    const { options } = chat([text('7'), text('8')], { ...setting, initialActionEvidence: true })
    const result = await runTurnLoop({
      ...options,
      onTextResponse: ({ state, responseText }) => ({
        state: { ...state, finalText: responseText },
        next: { control: 'continue' },
      }),
    })
    expect(result).toMatchObject({ reason: 'rejected_text_response', state: { finalText: '7' } })
    expect(evidence).toEqual([true, false])
  })

  it('has no evidence in calls that did not run, or that the application does not count [S2.27, S2.18]', async () => {
    const failed = JSON.stringify({
      ok: false,
      status: 'error',
      errorType: 'tool_parameter_validation_failed',
      toolName: 'look',
      message: 'look was not run',
      issues: [],
      corrections: [],
    })
    const unfit = chat([call('look'), text('7')], {
      requiresActionEvidence: () => true,
      execute: () => failed,
      reportResults: true,
    })
    expect((await runTurnLoop(unfit.options)).reason).toBe('rejected_text_response')
    const { options } = chat([call('ask'), text('7')], { requiresActionEvidence: () => true })
    const uncounted = await runTurnLoop({
      ...options,
      onToolCallsResponse: ({ state }) => ({ state, next: { control: 'continue' }, actionEvidence: false }),
    })
    expect(uncounted.reason).toBe('rejected_text_response')
  })

  it('is classified in time that does not grow with it [S2.27]', () => {
    const long = `${' '.repeat(100_000)}ok ok ${'going to '.repeat(100_000)}`
    expect(classifyText(long, true, true)).toBe('verified_final_response')
  })

  it('that promises is rejected, told so, and asked again as often as allowed [S2.27, S2.28]', async () => {
    const { options, requests } = chat([text('Let me check.'), call('look'), text('It is 7.')], {
      requiresActionEvidence: () => true,
      rejectedTextRetryLimit: 1,
    })
    const result = await runTurnLoop(options)
    expect(result).toMatchObject({ reason: 'text_response', rejectedTextRetryCount: 0 })
    expect(result.classifications.map(({ classification }) => classification)).toEqual([
      'intent_only_narration',
      'verified_final_response',
    ])
    expect(result.retries).toMatchObject([
      { kind: 'rejected_text', decision: 'retry', classification: 'intent_only_narration', retryLimit: 1 },
    ])
    expect(requests[1]?.messages.at(-1)?.content).toBe(DEFAULT_INTENT_ONLY_NARRATION_RECOVERY_INSTRUCTION)
  })

  it('that promises ends the loop without a retry by default, never as a success [S2.27]', async () => {
    const { options, requests } = chat([text('Let me check.')], { requiresActionEvidence: async () => true })
    const result = await runTurnLoop(options)
    expect(result).toMatchObject({ reason: 'rejected_text_response', state: { finalText: '' } })
    expect(result.steps.at(-1)?.branch).toBe('rejected_text_stop')
    expect(result.retries).toMatchObject([{ decision: 'stop', retryLimit: 0 }])
    expect(requests).toHaveLength(1)
  })

  it('is what the application says it is [S2.27]', async () => {
    const { options } = chat([text('It is 7.'), text('Let me check.')], {
      rejectedTextRetryLimit: 1,
      requiresActionEvidence: () => true,
      classifyTextResponse: ({ responseText, requiresActionEvidence }) => {
        expect(requiresActionEvidence).toBe(true)
        return responseText.startsWith('Let')
          ? 'verified_final_response'
          : { classification: 'non_progressing' }
      },
    })
    const result = await runTurnLoop(options)
    expect(result.state.finalText).toBe('Let me check.')
    expect(result.retries[0]).toMatchObject({
      classification: 'non_progressing',
      transientInstruction: DEFAULT_NON_PROGRESSING_TEXT_RECOVERY_INSTRUCTION,
    })
  })

  it('that is rejected can be kept by the application, which may also stop [S2.27]', async () => {
    const { options, requests } = chat([text('hm')], {
      rejectedTextRetryLimit: 5,
      classifyTextResponse: () => 'non_progressing',
      onRejectedTextResponse: ({ state, responseText, retryCount, classification }) => ({
        state: { ...state, finalText: `${classification} ${retryCount}: ${responseText}` },
        next: { control: 'stop' },
      }),
    })
    expect(await runTurnLoop(options)).toMatchObject({
      reason: 'rejected_text_response',
      state: { finalText: 'non_progressing 0: hm' },
    })
    expect(requests).toHaveLength(1)
  })

  it('is retried anew after a call: calls set the counts of retries back [S2.27]', async () => {
    const { options } = chat([text('hm'), text(''), call('look'), text('hm 2'), text(''), text('done')], {
      rejectedTextRetryLimit: 1,
      emptyTextRetryLimit: 1,
      classifyTextResponse: ({ responseText }) =>
        responseText.startsWith('hm') ? 'non_progressing' : undefined,
    })
    const result = await runTurnLoop(options)
    expect(result.reason).toBe('text_response')
    expect(result.retries.map(({ kind, retryCountBefore }) => [kind, retryCountBefore])).toEqual([
      ['rejected_text', 0],
      ['empty_text', 0],
      ['rejected_text', 0],
      ['empty_text', 0],
    ])
  })

  it('that is empty is asked again up to the limit, then the application hears of it [S2.27, S2.21]', async () => {
    const counts: number[] = []
    const { options } = chat(times(3, text('')), {
      emptyTextRetryLimit: 2,
      onEmptyTextStop: ({ state, retryCount }) => {
        counts.push(retryCount)
        return { state: { ...state, finalText: '(nothing)' } }
      },
    })
    expect(await runTurnLoop(options)).toMatchObject({
      reason: 'empty_text_stop',
      iterations: 3,
      state: { finalText: '(nothing)' },
    })
    expect(counts).toEqual([2])
  })

  it('brings the instruction of the callback before that of the judgement before the default [S2.28]', async () => {
    const instructionAfter = async (callback?: string, judgement?: string) => {
      const { options, requests } = chat([text('hm'), text('done')], {
        rejectedTextRetryLimit: 1,
        classifyTextResponse: ({ iteration }) =>
          iteration > 1
            ? undefined
            : {
                classification: 'non_progressing',
                ...(judgement === undefined ? {} : { transientInstruction: judgement }),
              },
        onRejectedTextResponse: ({ state }) => ({
          state,
          next: {
            control: 'continue',
            ...(callback === undefined ? {} : { transientInstruction: callback }),
          },
        }),
      })
      await runTurnLoop(options)
      return requests[1]?.messages.at(-1)?.content
    }
    expect(await instructionAfter('callback', 'judgement')).toBe('callback')
    expect(await instructionAfter(undefined, 'judgement')).toBe('judgement')
    expect(await instructionAfter()).toBe(DEFAULT_NON_PROGRESSING_TEXT_RECOVERY_INSTRUCTION)
  })

  it('recovers from a call that did not fit: artifact, instruction, corrected call [S2.28]', async () => {
    const artifact = JSON.stringify({
      ok: false,
      status: 'error',
      errorType: 'tool_parameter_validation_failed',
      toolName: 'look',
      message: 'look was not run',
      issues: [{ path: 'at', code: 'invalid_type', message: 'is required and missing' }],
      corrections: [],
    })
    const { options, requests } = chat([call('look'), call('look', { at: 1 }), text('done')])
    await runTurnLoop({
      ...options,
      onToolCallsResponse: ({ state, response }) => {
        const [made] = response.tool_calls ?? []
        const content = made?.function.arguments === '{}' ? artifact : 'seen'
        const failed = parseToolValidationFailureArtifact(content)
        const told = { role: 'tool', tool_call_id: made?.id ?? '', content } as const
        return {
          state: { ...state, messages: [...state.messages, response.assistantMessage, told] },
          next: {
            control: 'continue',
            ...(failed === null
              ? {}
              : { transientInstruction: DEFAULT_TOOL_VALIDATION_RECOVERY_INSTRUCTION }),
          },
        }
      },
    })
    const last = requests.map(({ messages }) => messages.at(-1)?.content)
    expect(last).toEqual(['Go.', DEFAULT_TOOL_VALIDATION_RECOVERY_INSTRUCTION, 'seen'])
  })
})

describe('a call found in plain text', () => {
  const parse = (content: string) =>
    content.startsWith('CALL ') ? { toolName: content.slice(5), toolArgs: { a: 1 } } : null

  it('becomes a tool call with an id of the loop, in answer and transcript [S2.29]', async () => {
    const { options, executed } = chat([text('CALL look'), text('CALL read'), text('done')], {
      parsePlainTextToolIntent: parse,
    })
    const result = await runTurnLoop(options)
    expect(executed).toEqual(['look', 'read'])
    expect(result.toolCalls).toMatchObject([
      { toolCallId: 'tool-intent-1', toolName: 'look', source: 'normalized_text_intent', synthetic: false },
      { toolCallId: 'tool-intent-2', toolName: 'read', source: 'normalized_text_intent' },
    ])
    const said = result.state.messages.find(({ role }) => role === 'assistant')
    expect(said).toEqual({
      role: 'assistant',
      content: 'CALL look',
      tool_calls: [
        { id: 'tool-intent-1', type: 'function', function: { name: 'look', arguments: '{"a":1}' } },
      ],
    })
  })

  it('is marked as synthetic in answer, transcript, summary and step where that is asked for [S2.29]', async () => {
    const { options } = chat([text('CALL look'), text('done')], {
      parsePlainTextToolIntent: parse,
      markSyntheticToolCalls: true,
    })
    const seen: unknown[] = []
    const result = await runTurnLoop({
      ...options,
      onModelResponse: ({ response }) => void seen.push(response.tool_calls?.[0]?.synthetic),
    })
    expect(seen[0]).toBe(true)
    expect(result.state.messages[1]?.tool_calls?.[0]?.synthetic).toBe(true)
    expect(result.toolCalls[0]).toMatchObject({ source: 'normalized_text_intent', synthetic: true })
    expect(result.steps[0]?.syntheticToolCallCount).toBe(1)
  })

  it('is not looked for in an answer of calls, nor in an empty text [S2.29]', async () => {
    const looked: string[] = []
    const { options } = chat([call('look'), text(''), text('done')], {
      emptyTextRetryLimit: 1,
      parsePlainTextToolIntent: (content) => {
        looked.push(content)
        return null
      },
    })
    await runTurnLoop(options)
    expect(looked).toEqual(['done'])
  })
})
