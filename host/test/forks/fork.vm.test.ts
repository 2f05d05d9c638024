// A run of two steps is forked after its end, and while it waits for a person.
import { expect, it } from 'vitest'
import type { JournalEvent } from '#specs/protocol/event.ts'
import { reply } from '#specs/testing/model-replies.ts'
import {
  type Asked,
  type ModelServer,
  type Script,
  type ServerReply,
  startModelServer,
} from '#specs/testing/model-server.ts'
import { Host } from '../../host.ts'
import type { Run } from '../../runs/run.ts'
import { findVms, finish, type TestBench, testBench } from '../support/runs.ts'

const step = (id: string, needs: string[] = []) => ({
  ...{ id, title: id, instructions: `do ${id}`, needs, writes: [] },
  onFailure: 'abort' as const,
})
const plan = { goal: 'say hello', steps: [step('first'), step('second', ['first'])] }

const write = (file: string, text: string) => ({
  name: 'run_bash',
  arguments: JSON.stringify({ command: `echo ${text} >> ${file}` }),
})
const question = { name: 'ask_user', arguments: JSON.stringify({ kind: 'text', question: 'Which color?' }) }

/** `second` writes what the person said to it, or what they answered. */
function answer({ messages }: Asked, asks: boolean): ServerReply {
  const text = messages.map(({ content }) => content ?? '').join('\n')
  const turn = messages.filter(({ role }) => role === 'assistant').length
  const call = (one: { name: string; arguments: string }) =>
    reply({ calls: [{ ...one, id: `call-${turn}` }] })
  const isSecond = text.includes('do second')
  if (!isSecond) return turn === 0 ? call(write('first.txt', 'one')) : reply({ text: 'did first' })
  const words = ['bonjour', 'hallo', 'red', 'blue'].filter((word) => text.includes(word)).at(-1) ?? 'hello'
  if (asks && turn === 0) return call(question)
  return turn === (asks ? 1 : 0) ? call(write('second.txt', words)) : reply({ text: `said ${words}` })
}

async function bench(script: Script): Promise<TestBench & { readonly model: ModelServer }> {
  const model = await startModelServer(script)
  const key = {
    CAISSON_LLM_URL: model.baseUrl,
    CAISSON_LLM_KEY: 'sk-some-key-of-the-test',
    CAISSON_MODEL: 'scripted',
  }
  return { ...(await testBench({ 'a.txt': 'a\n' }, key)), model }
}

/** Lines that the run added, by path. */
async function contents(host: Host, runId: string): Promise<Record<string, string>> {
  const added: Record<string, string> = {}
  for await (const { path, diff } of (await host.changes(runId)).reviewWithDiffs()) {
    const lines = (diff ?? '').split('\n').filter((line) => /^\+(?!\+\+)/.test(line))
    added[path] = lines.map((line) => `${line.slice(1)}\n`).join('')
  }
  return added
}

const typesOf = (events: readonly JournalEvent[], type: string) =>
  events.filter(({ event }) => event.type === type)

it('three forks of a run begin at its second step, each follows what was said to it, and nothing before is paid again [V.05]', async () => {
  const { host, run, model, home } = await bench((asked) => answer(asked, false))
  await using _ = model
  const first = await run('say hello', { plan: { from: plan } })
  expect(first.state.end?.outcome).toBe('completed')
  const paid = model.asked.length
  expect(Object.keys(first.state.moments)).toEqual(['first', 'second'])
  const original = await host.runs.read(first.run.id)

  const { runIds } = await host.fork(first.run.id, { at: 'second', count: 3, prompts: ['bonjour', 'hallo'] })
  const forks = await Promise.all(
    runIds.map(async (id) => await finish(await host.resume(id, { onNotes: () => undefined }))),
  )
  expect(forks.map(({ state }) => state.end?.outcome)).toEqual(['completed', 'completed', 'completed'])
  const said = await Promise.all(runIds.map((id) => contents(host, id)))
  expect(said).toEqual(
    ['bonjour', 'hallo', 'hello'].map((word) => ({ 'first.txt': 'one\n', 'second.txt': `${word}\n` })),
  )
  // Two requests of the second step each; those of the first are in the budget.
  expect(model.asked.length - paid).toBe(6)
  const spent = first.state.usage.requests
  expect(forks.map(({ state }) => state.usage.requests)).toEqual([spent, spent, spent])
  for (const id of runIds) {
    const events = await host.runs.read(id)
    expect(typesOf(events, 'run-resume')).toMatchObject([
      { event: { message: `forked from ${first.run.id} at second` } },
    ])
    expect(typesOf(events, 'step-start')).toHaveLength(2)
    expect(typesOf(events, 'run-end')).toHaveLength(1)
  }
  // Its handle forks it, too.
  const ofHandle = await first.run.fork({ at: 'second', count: 1, prompts: [], by: 'a test' })
  expect(ofHandle).toMatchObject({ step: 'second', runIds: [expect.stringMatching(/^run-/)] })
  expect(await host.runs.read(first.run.id)).toEqual(original)
  const { paths } = await host.compare(runIds)
  expect(paths.map(({ path, isSame }) => [path, isSame])).toEqual([
    ['first.txt', true],
    ['second.txt', false],
  ])
  expect(await host.testRun(runIds[0] ?? '', 'cat a.txt first.txt; grep bonjour second.txt')).toMatchObject({
    ...{ exitCode: 0, stdout: 'a\none\nbonjour\n' },
  })
  expect(await findVms(home)).toEqual([])
}, 300_000)

it('a run that waits for a person is forked by another process, and rewound, which ends it [V.05]', async () => {
  const { host, start, model, home } = await bench((asked) => answer(asked, true))
  await using _ = model
  const run = await start('say hello', { plan: { from: plan }, approvals: { interactive: true } })
  const answerOnce = async (one: typeof run, color: string): Promise<string | undefined> => {
    for await (const item of one.watch()) {
      if (item.source === 'delta' || item.event.type !== 'approval-request') continue
      const { approvalId } = item.event.request
      if (!one.hasPendingApproval(approvalId)) continue
      if (color === '') return undefined
      await one.answer(approvalId, { decision: 'allow', scope: 'once', answer: color })
    }
    return (await one.result()).outcome
  }
  await answerOnce(run, '')
  const other = new Host({
    env: {
      ...process.env,
      CAISSON_HOME: home,
      CAISSON_LLM_URL: model.baseUrl,
      CAISSON_LLM_KEY: 'sk-some-key-of-the-test',
      CAISSON_MODEL: 'scripted',
    },
  })
  const forks = await other.fork(run.id, { at: 'now' })
  expect([forks.step, forks.notNow]).toEqual(['now', undefined])
  const rewound = await other.rewind(run.id, { to: 'second', prompt: 'bonjour' })
  expect((await run.result()).message).toBe(`cancelled by rewind to second as ${rewound.runId}`)

  const ids = [forks.runIds[0] ?? '', rewound.runId]
  const outcomes = await Promise.all(
    ids.map(async (id, index) => {
      const next = await other.resume(id, { interactive: true, onNotes: () => undefined })
      return await answerOnce(next, ['red', 'blue'][index] ?? '')
    }),
  )
  expect(outcomes).toEqual(['completed', 'completed'])
  expect(await contents(other, ids[0] ?? '')).toEqual({ 'first.txt': 'one\n', 'second.txt': 'red\n' })
  expect(await contents(other, ids[1] ?? '')).toEqual({ 'first.txt': 'one\n', 'second.txt': 'blue\n' })
  expect(await findVms(home)).toEqual([])
  await other.close()
  await host.close()
}, 300_000)

it('a run at work is forked at the moment of the call; while a command works, at the last checkpoint before it [V.05]', async () => {
  const [asked, release, worked] = [turn(), turn(), turn()]
  const script = async ({ messages }: Asked): Promise<ServerReply> => {
    const count = messages.filter(({ role }) => role === 'assistant').length
    const next = [write('a.txt', 'one'), write('b.txt', 'two'), { name: 'run_bash', arguments: slow }][count]
    if (count === 2) {
      asked.resolve()
      await release.promise
    }
    return next === undefined
      ? reply({ text: 'did it' })
      : reply({ calls: [{ ...next, id: `call-${count}` }] })
  }
  const { host, start, model, home } = await bench(script)
  await using _ = model
  const run = await start('say hello', { plan: { from: { goal: 'say hello', steps: [step('first')] } } })
  const watched = watchFor(run, worked.resolve)
  // The third request to the model is under way; what came before it is done.
  await asked.promise
  const now = await run.fork({ at: 'now', count: 1, prompts: [], by: 'a test' })
  expect([now.step, now.notNow]).toEqual(['now', undefined])
  release.resolve()
  await worked.promise
  const during = await run.fork({ at: 'now', count: 1, prompts: [], by: 'a test' })
  expect([during.step, during.notNow]).toEqual(['end', 'a call that changes something is under way'])
  await run.cancel({ now: true })
  await watched

  const ids = [now.runIds[0] ?? '', during.runIds[0] ?? '']
  const forks = await Promise.all(
    ids.map(async (id) => await finish(await host.resume(id, { onNotes: () => undefined }))),
  )
  expect(forks.map(({ state }) => state.end?.outcome)).toEqual(['completed', 'completed'])
  for (const id of ids) {
    expect(await contents(host, id)).toEqual({ 'a.txt': 'one\n', 'b.txt': 'two\n', 'c.txt': 'three\n' })
    const events = await host.runs.read(id)
    const starts = events.flatMap(({ event }) => (event.type === 'tool-start' ? [event.callId] : []))
    expect(starts.filter((callId) => callId !== 'call-2')).toEqual(['call-0', 'call-1'])
  }
  expect(await findVms(home)).toEqual([])
}, 300_000)

const slow = JSON.stringify({ command: 'sleep 20; echo three >> c.txt' })
const turn = () => Promise.withResolvers<void>()

/** Calls back once the slow command is at work. */
async function watchFor(run: Run, onSlow: () => void): Promise<void> {
  for await (const item of run.watch())
    if (item.source !== 'delta' && item.event.type === 'tool-start' && item.event.callId === 'call-2')
      onSlow()
}
