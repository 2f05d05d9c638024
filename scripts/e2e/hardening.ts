/**
 * `npm run test:e2e:hardening`: how the turn loop handles weak tool users, end to end and without a network: a
 * promise instead of a call, invalid arguments, a call in plain text, a cycle.
 */
import {
  DEFAULT_INTENT_ONLY_NARRATION_RECOVERY_INSTRUCTION,
  DEFAULT_TOOL_VALIDATION_RECOVERY_INSTRUCTION,
  executeTool,
  type LLMChatMessage,
  parseToolValidationFailureArtifact,
  runTurnLoop,
} from '../../runtime/index.ts'
import { calls, createScriptedModel, type ScriptedReply, text } from '../../runtime/testing/index.ts'
import { expectThat, openNotebook, runMain } from './notebook.ts'

const saving = (args: unknown) => calls({ name: 'save_note', arguments: args })
const note = { title: 'a', content: 'b' }

runMain(async () => {
  const promised = await play([text('I will check the notes.'), saving(note), text('Saved.')])
  expectThat(
    promised.reason === 'text_response' && promised.saved,
    'a promise is rejected, then the call is made',
  )
  expectThat(
    promised.said[1] === DEFAULT_INTENT_ONLY_NARRATION_RECOVERY_INSTRUCTION,
    'the model learns that it only promised',
  )

  const stubborn = await play([text('I will check.'), text('Let me check.')])
  expectThat(stubborn.reason === 'rejected_text_response', 'promises alone are no success')

  const misfit = await play([saving({ titel: 'a' }), saving(note), text('Saved.')])
  expectThat(misfit.reason === 'text_response' && misfit.saved, 'arguments that do not fit are corrected')
  expectThat(
    misfit.said[1] === DEFAULT_TOOL_VALIDATION_RECOVERY_INSTRUCTION,
    'the model learns that its call was not run',
  )

  const plain = await play([text('save_note {"title":"a","content":"b"}'), text('Saved.')])
  expectThat(plain.saved && plain.synthetic === 1, 'a call in plain text is made, and marked')

  const circle = await play([saving(note), saving(note), saving(note)])
  expectThat(circle.reason === 'repeated_tool_call_stopped', 'a circle is stopped')
})

/** A loop over a model with these answers; records the last message of each request. */
async function play(replies: readonly ScriptedReply[]) {
  await using model = createScriptedModel({ replies })
  const provider = { baseUrl: await model.listen() }
  const { notes, tools } = openNotebook()
  const result = await runTurnLoop<readonly LLMChatMessage[]>({
    initialState: [{ role: 'user', content: 'Save a note.' }],
    rejectedTextRetryLimit: 1,
    markSyntheticToolCalls: true,
    modelRequest: {
      provider: 'openai-compatible',
      providers: { 'openai-compatible': provider },
      model: 'scripted',
      tools,
    },
    buildMessages: ({ state, transientInstruction: content }) =>
      content === undefined ? state : [...state, { role: 'system', content }],
    parsePlainTextToolIntent: (said) => {
      const found = /^save_note (\{.*\})$/.exec(said)
      return found === null ? null : { toolName: 'save_note', toolArgs: JSON.parse(found[1] ?? '{}') }
    },
    requiresActionEvidence: () => notes.size === 0,
    onTextResponse: ({ state, response }) => ({ state: [...state, response.assistantMessage] }),
    onToolCallsResponse: async ({ state, response }) => {
      const results = await Promise.all(
        (response.tool_calls ?? []).map((call) => executeTool(undefined, call, { tools })),
      )
      const failed = results.some(({ content }) => parseToolValidationFailureArtifact(content) !== null)
      const told = results.map(({ message }) => message)
      return {
        state: [...state, response.assistantMessage, ...told],
        next: {
          control: 'continue',
          ...(failed ? { transientInstruction: DEFAULT_TOOL_VALIDATION_RECOVERY_INSTRUCTION } : {}),
        },
        toolResults: told.map((one) => ({ toolCallId: one.tool_call_id ?? '', content: one.content })),
      }
    },
  })
  model.assertDone()
  return {
    reason: result.reason,
    saved: notes.has('a'),
    synthetic: result.toolCalls.filter(({ synthetic }) => synthetic).length,
    said: model.requests.map(({ messages }) => messages.at(-1)?.content),
  }
}
