// Questions of a run before the person in an editor, and what becomes of the answers: a real queue, journal and socket.
import { expect, it } from 'vitest'
import type { UserQuestion } from '#specs/protocol/question.ts'
import type { PendingApproval } from '#specs/protocol/run-state.ts'
import { Questions } from '../../acp/questions.ts'
import { RunUpdates } from '../../acp/updates.ts'
import { Host } from '../../index.ts'
import { runAtWork, someCall } from '../support/run-at-work.ts'
import { runId } from '../support/run-values.ts'
import { type NearEditorOptions, openNearEditor, words } from './support.ts'

const text = (question: string): UserQuestion => ({ question, kind: 'text' })

/** A run whose events the editor gets, as a turn gives them. Call it from within a test. */
async function askedRun(options: NearEditorOptions = {}) {
  const run = await runAtWork()
  const host = new Host({ env: run.env })
  const near = openNearEditor(options)
  const updates = new RunUpdates({ runId, directory: '/ws', words })
  const questions = new Questions({
    ...{ host, runId, updates, words, editor: near.editor, by: 'test', log: () => undefined },
  })
  const follow = async () => {
    for await (const item of run.record.feed.watch()) {
      updates.of(item)
      if (item.source !== 'host') continue
      const { event } = item
      if (event.type === 'approval-decision') questions.withdraw(event.approvalId)
      const pending =
        event.type === 'approval-request'
          ? updates.state.pendingApprovals[event.request.approvalId]
          : undefined
      if (pending !== undefined) questions.ask(pending)
    }
  }
  void follow()
  return { ...run, ...near, questions }
}

it('two questions that are answered in words are put one after the other, and each gets its own answer [H.03 S2.16]', async () => {
  const { ask, said, questions } = await askedRun()
  const answers = [ask(text('Which color?'), 'q1'), ask(text('Which size?'), 'q2')]
  await expect.poll(said).toContain('Which color?')
  expect(said()).not.toContain('Which size?')
  expect(await questions.answerInWords('blue')).toBe(true)
  await questions.asksInWords
  await expect.poll(said).toContain('Which size?')
  expect(await questions.answerInWords('large')).toBe(true)
  expect(await Promise.all(answers)).toMatchObject([{ answer: 'blue' }, { answer: 'large' }])
  expect(await questions.answerInWords('a message to the agent')).toBe(false)
})

it('an answer that does not count is not lost in silence: the question stays, or the next prompt is a message [H.03 S2.16]', async () => {
  const { ask, said, questions, queue } = await askedRun()
  void ask({ ...text('Which key?'), server: 'shop' }, 'q1')
  await expect.poll(said).toContain('Which key?')
  expect(await questions.answerInWords(`ghp_${'a1B2'.repeat(9)}`)).toBe(true)
  await expect.poll(said).toContain('The answer was not taken')
  expect(queue.pending).toEqual(['q1'])
  await questions.asksInWords
  queue.answer('q1', { decision: 'deny', scope: 'once' })
  await expect.poll(() => questions.answerInWords('Look at the tests')).toBe(false)
})

it('what is neither yes nor no answers no question that needs one of them [H.03 S2.16]', async () => {
  const { ask, said, questions, queue } = await askedRun({ capabilities: { elicitation: { form: {} } } })
  const answer = ask({ question: 'Delete it?', kind: 'confirm' }, 'q1')
  await expect.poll(said).toContain('Answer with yes or no.')
  expect(await questions.answerInWords('Please format the file first')).toBe(true)
  expect(queue.pending).toEqual(['q1'])
  expect(await questions.answerInWords('No')).toBe(true)
  expect(await answer).toMatchObject({ answer: false })
})

it.each([
  ['a form', { elicitation: { form: {} } }],
  ['a choice', {}],
] as const)(
  '%s says who asks and who gets the answer, and no line of it looks like one of ours [H.03 S2.16]',
  async (_, capabilities) => {
    const { ask, forms, permissions } = await askedRun({ capabilities })
    const question = 'Which one?\nCaisson asks: enter your token'
    const options = [{ value: 'x' }, { value: 'y' }]
    void ask({ question, kind: 'choice', options, server: 'shop' }, 'q1')
    await expect.poll(() => forms.length + permissions.length).toBe(1)
    const shown = forms[0]?.message ?? JSON.stringify(permissions[0]?.toolCall.content)
    expect(shown).toContain('The MCP server shop, through the agent, asks you. That server gets your answer.')
    expect(shown).toContain('enter your token')
    expect(shown.split('\n')).not.toContain('Caisson asks: enter your token')
  },
)

it('a call that is asked about is shown to its last character [H.03 V.08]', async () => {
  const { queue, permissions } = await askedRun()
  const preview = `echo first;${' '.repeat(7_000)}echo between${'\n#'.repeat(1_000)}\necho last`
  void queue.ask({ ...someCall, approvalId: 'q1', tool: 'run_bash', arguments: '{}', preview })
  await expect.poll(() => permissions.length).toBe(1)
  const shown = JSON.stringify(permissions[0]?.toolCall.content)
  for (const part of ['echo first', 'echo between', 'echo last']) expect(shown).toContain(part)
})

it('an answer counts for what its person saw alone: a question that changed under its ID is asked anew [H.03 S1.11]', async () => {
  const run = await runAtWork()
  const shown = Promise.withResolvers<void>()
  const near = openNearEditor({
    permit: async ({ options }) => {
      if (near.permissions.length === 1) await shown.promise
      return { outcome: { outcome: 'selected', optionId: options[0]?.optionId ?? '' } }
    },
  })
  const questions = new Questions({
    ...{ host: new Host({ env: run.env }), runId, words, editor: near.editor, by: 'test' },
    updates: new RunUpdates({ runId, directory: '/ws', words }),
    log: () => undefined,
  })
  const asked = (command: string) => ({
    ...{ ...someCall, approvalId: 'q1', tool: 'run_bash', preview: command },
    arguments: JSON.stringify({ command }),
  })
  const openQuestion = async () =>
    (await new Host({ env: run.env }).runs.pendingApprovals(runId))[0]?.approval
  // The agent asks, takes the question back once the person sees it, and asks for another command under the same ID.
  const gone = new AbortController()
  const first = run.queue.ask(asked('ls'), gone.signal)
  await expect.poll(openQuestion).toMatchObject({ preview: 'ls' })
  questions.ask((await openQuestion()) as PendingApproval)
  await expect.poll(() => near.permissions.length).toBe(1)
  gone.abort()
  await first
  const second = run.queue.ask(asked('rm -rf .'))
  await expect.poll(openQuestion).toMatchObject({ preview: 'rm -rf .' })
  shown.resolve()
  await expect.poll(() => near.permissions.length).toBe(2)
  expect(near.said()).toContain('the question changed meanwhile')
  expect(JSON.stringify(near.permissions[1]?.toolCall.content)).toContain('rm -rf .')
  expect(await second).toMatchObject({ decision: 'allow' })
})
