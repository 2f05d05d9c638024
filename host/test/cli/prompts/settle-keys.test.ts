// Keys that a person types for something else while a question appears.
import { once } from 'node:events'
import fc from 'fast-check'
import { describe, expect, it, vi } from 'vitest'
import type { ApprovalAnswer } from '../../../approvals/queue.ts'
import { ownChanges } from '../../../cli/commands/changes-of-run.ts'
import { reviewAndApply } from '../../../cli/commands/review-changes.ts'
import { promptApproval } from '../../../cli/prompts/approval-prompt.ts'
import { collectKeys, readLine, settleKeys } from '../../../cli/prompts/terminal-input.ts'
import type { Question } from '../../../cli/render/approval-lines.ts'
import type { Host } from '../../../host.ts'
import { askedQuestions } from '../support/asked-questions.ts'
import { Person } from '../support/person.ts'

const call = {
  approvalId: 'a1',
  agentPath: 'root',
  stepId: 's',
  callId: 'c',
  tool: 'delete_file',
  arguments: '{"path":"a"}',
  preview: '',
}
/** One of each kind of question that a run puts. */
const questions = Object.entries(askedQuestions).map(
  ([kind, asked]) => [kind, { ...call, ...asked } as Question] as const,
)

const up = '\u001b[A'
const [down, esc] = ['\u001b[B', '\u001b']
/** What the prompts could take for an answer, among words that hold such letters. */
const fragments = [
  '1',
  '2',
  'y',
  'n',
  'yes',
  '\r',
  '\n',
  up,
  down,
  ' ',
  'a',
  'i',
  'please skip the tests',
  esc,
]
const sentences = fc
  .array(fc.oneof(fc.constantFrom(...fragments), fc.string({ maxLength: 8 })), { maxLength: 12 })
  .map((parts) => parts.join(''))

/** A person at a terminal that hands over each key, who types when the first text of a question appears. */
function sitDownTyping(keys: string) {
  const person = new Person()
  Object.assign(person.input, { isTTY: true, setRawMode: () => person.input })
  const write = person.output.write.bind(person.output)
  let hasTyped = false
  person.output.write = ((...given: Parameters<typeof write>) => {
    if (!hasTyped) person.type(keys)
    hasTyped = true
    return write(...given)
  }) as typeof write
  return person
}

/** The question, and whether anything but its withdrawal ended it after all keys were read. */
async function answerWithin(request: Question, keys: string) {
  const person = sitDownTyping(keys)
  const { input, output, signal } = person
  let answer: ApprovalAnswer | null | undefined
  const ended = promptApproval(request, { input, output, signal, quietMs: 25 }).then((given) => {
    answer = given
  })
  await expect.poll(() => person.listens, { interval: 5 }).toBe(true)
  await new Promise((resolve) => setImmediate(resolve))
  const before = answer
  person.withdraw()
  await ended
  return before
}

describe('text that is typed while a question appears', () => {
  it.each(questions)('never answers %s, whatever it is [S1.11 H.01]', async (_, request) => {
    await fc.assert(
      fc.asyncProperty(sentences, async (keys) => {
        expect(await answerWithin(request, keys)).toBeUndefined()
      }),
      { numRuns: 25, examples: [['please skip the tests\r'], ['1\r'], ['y\r'], [`${up}${up}\r`]] },
    )
  })

  it.each(questions.filter(([, { question }]) => question === undefined))(
    'has, in %s, a first choice that is the narrowest grant [S1.11]',
    async (_, request) => {
      const person = new Person()
      const { input, output, signal } = person
      const answer = promptApproval(request, { input, output, signal })
      await expect.poll(() => person.listens).toBe(true)
      person.type('1\r')
      const { access } = request
      const reach = access === undefined ? {} : { reach: access.offers[0]?.reach }
      expect(await answer).toEqual({ decision: 'allow', scope: 'once', ...reach })
    },
  )

  it('applies no changes, whatever it is [S1.11 W.01]', async () => {
    await fc.assert(
      fc.asyncProperty(sentences, async (keys) => {
        const person = sitDownTyping(keys)
        const applied: unknown[] = []
        const items = [{ path: 'a.txt', change: 'deleted', state: { kind: 'clean' } }]
        const changes = {
          directory: '/w',
          runId: 'run-1',
          inspect: async () => ({ items, history: [], aside: [] }),
          reviewWithDiffs: () => [],
          apply: (selection: unknown) => applied.push(selection),
        }
        const host = { changes: async () => changes } as unknown as Host
        const io = {
          stdin: person.input,
          stdout: person.output,
          stderr: person.output,
          env: {},
          version: '0',
        }
        const done = reviewAndApply(io, await ownChanges(host, 'run-1'), {
          choice: 'ask',
          state: {
            end: { outcome: 'completed', reason: 'completed', message: '', summary: '' },
            heldBack: null,
          },
          quietMs: 25,
        })
        await expect.poll(() => person.listens, { interval: 5 }).toBe(true)
        person.type('n\r')
        await done
        expect(applied).toEqual([])
      }),
      { numRuns: 25, examples: [['no, wait\r'], ['y\r'], ['1\r']] },
    )
  })

  it('counts as typed too soon until a second went by without a key [S1.11]', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
    try {
      const person = sitDownTyping('')
      let isQuiet = false
      const settled = settleKeys(person).then(() => {
        isQuiet = true
      })
      for (const key of 'y\ry\r') {
        person.type(key)
        await new Promise((resolve) => setImmediate(resolve))
        await vi.advanceTimersByTimeAsync(900)
        expect(isQuiet).toBe(false)
      }
      await vi.advanceTimersByTimeAsync(200)
      await settled
      expect(person.raw).toContain('Ignored, because it was typed before the question: “y y”')
    } finally {
      vi.useRealTimers()
    }
  })

  it('is not lost: where a message can be written, it is kept for it [A.08 H.01]', async () => {
    const person = sitDownTyping('')
    const kept: string[] = []
    person.type('skip the te\u007fests\r')
    await settleKeys({
      ...person,
      input: person.input,
      output: person.output,
      signal: person.signal,
      quietMs: 25,
      keepTyped: (keys) => {
        kept.push(keys)
        return 'please skip the tests'
      },
    })
    expect(kept).toEqual(['skip the te\u007fests\r'])
    expect(person.raw).toContain('kept as your next message to the agent: “please skip the tests”')
  })

  it('answers nothing behind a line that was no answer: the rest of a pasted text is waited out [S1.11]', async () => {
    const person = sitDownTyping('')
    const { input, output, signal } = person
    const answer = promptApproval(call, { input, output, signal, quietMs: 25 })
    await person.sees('Type 1-4')
    for (const line of ['several lines:', '1', 'y']) {
      person.type(`${line}\r`)
      await new Promise((resolve) => setImmediate(resolve))
    }
    await person.sees('typed before the question: “1 y”')
    await expect.poll(() => person.listens).toBe(true)
    person.type('3\r')
    expect(await answer).toEqual({ decision: 'deny', scope: 'once' })
  })

  it.each(['1\r2\r', 'y\ryes, all of it', '1\r\n2\r\n'])(
    'answers nothing with several lines that are pasted at once, though the first is an answer: %j [S1.11]',
    async (pasted) => {
      const person = sitDownTyping('')
      const { input, output, signal } = person
      const answer = promptApproval(call, { input, output, signal, quietMs: 25 })
      await person.sees('Type 1-4')
      person.type(pasted)
      await person.sees('Pasted lines')
      await expect.poll(() => person.listens).toBe(true)
      person.type('3\r\n')
      expect(await answer).toEqual({ decision: 'deny', scope: 'once' })
    },
  )

  it('keeps a line that was ended just before its question was withdrawn, and what came behind it [A.08 H.01]', async () => {
    const person = sitDownTyping('')
    const line = readLine(person, '› ', 'no, wait ')
    await expect.poll(() => person.listens).toBe(true)
    person.input.on('keypress', (_, key: { sequence?: string } | undefined) => {
      if (key?.sequence === '2') person.withdraw()
    })
    person.type('yet 1\r2')
    expect(await line).toEqual({ kind: 'withdrawn', text: 'no, wait yet 1 2' })
  })

  it('still interrupts by Ctrl-C [A.08]', async () => {
    const person = sitDownTyping('')
    const interrupted = once(process, 'SIGINT')
    const keys = collectKeys(person.input, 25, person.signal)
    person.type('a\u0003b')
    await interrupted
    expect(await keys).toBe('ab')
  })
})

it('keys that were pressed before a question answer nothing, also where the terminal was left paused [S1.11 H.01]', async () => {
  const person = sitDownTyping('')
  person.input.pause()
  person.type('\u001b[A\r')
  expect(await collectKeys(person.input, 25, person.signal)).toBe('\u001b[A\r')
  const heard: string[] = []
  person.input.on('data', (keys: Buffer) => heard.push(String(keys)))
  person.input.resume()
  person.type('n')
  await expect.poll(() => heard).toEqual(['n'])
})
