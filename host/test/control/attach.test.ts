// A run watched from another process: a real journal-like feed behind a real socket; only the run's work is scripted.
import { execFile } from 'node:child_process'
import path from 'node:path'
import { pathToFileURL } from 'node:url'
import { promisify } from 'node:util'
import { describe, expect, it, onTestFinished } from 'vitest'
import { CaissonError } from '#specs/errors.ts'
import type { HostEvent, JournalEvent } from '#specs/protocol/event.ts'
import { Plan } from '#specs/protocol/plan.ts'
import type { UserQuestion } from '#specs/protocol/question.ts'
import { initialRunState, type RunState, reduceRun } from '#specs/protocol/run-state.ts'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { ApprovalQueue } from '../../approvals/queue.ts'
import { askControl } from '../../control/client.ts'
import { WatchOutput } from '../../control/messages.ts'
import { cancelRunAt, RunClient } from '../../control/run-client.ts'
import { ControlServer } from '../../control/server.ts'
import type { RunService } from '../../control/services.ts'
import type { FeedItem } from '../../journal/run-feed.ts'
import { Feed } from '../../journal/run-feed.ts'
import { runId, until } from '../support/run-values.ts'

const hash = 'a'.repeat(64)
const question = {
  approvalId: 'a1',
  agentPath: 'root',
  stepId: 's1',
  callId: 'c1',
  tool: 'delete_file',
  arguments: '{}',
  preview: '',
}

interface Scripted extends RunService {
  emit(event: HostEvent): Promise<void>
  ask(approvalId: string): Promise<unknown>
  askPlan(approvalId: string, plan: Plan): Promise<unknown>
  askUser(approvalId: string, asked: UserQuestion): Promise<unknown>
  /** A question about network access; resolves to the answer as the host was to carry it out. */
  askAccess(approvalId: string): Promise<unknown>
  finish(): void
  readonly cancels: [string, boolean | undefined][]
  /** What was said to the agent. */
  readonly said: string[]
  /** Against which it speaks. */
  problem: string | undefined
  readonly socket: string
  readonly server: ControlServer
}

async function scriptedRun(): Promise<Scripted> {
  const feed = new Feed()
  const ended = Promise.withResolvers<RunState>()
  let state = initialRunState
  let seq = 0
  const emit = async (event: HostEvent): Promise<void> => {
    state = reduceRun(state, { event })
    seq += 1
    feed.push({ seq, at: 1, runId, source: 'host', event, prev: hash, hash } satisfies JournalEvent)
  }
  const queue = new ApprovalQueue({ mode: 'ask', rules: [], interactive: true, record: emit })
  const cancels: Scripted['cancels'] = []
  const said: string[] = []
  const hear = async (text: string): Promise<void> => {
    if (scripted.problem !== undefined) throw new CaissonError('not_possible_now', scripted.problem)
    said.push(text)
  }
  const service: RunService = {
    watch: () => feed.watch(),
    answer: async (approvalId, answer, { by = '', via = 'library' } = {}) =>
      queue.answer(approvalId, answer, { name: by, via }),
    revokeAnswer: (approvalId, { by } = {}) => hear(`${by} revokes ${approvalId}`),
    hasPendingApproval: (approvalId) => queue.pending.includes(approvalId),
    fork: () => Promise.reject(new Error('there is no disk here')),
    cancel: async ({ by = '', now } = {}) => void cancels.push([by, now]),
    steer: (text, { by, to = 'root' } = {}) =>
      hear(to === 'root' ? `${by}: ${text}` : `${by} to ${to}: ${text}`),
    cancelAgent: (path, { by, reason } = {}) => hear(`${by} cancels ${path}: ${reason}`),
    pause: ({ by } = {}) => hear(`${by}: pause`),
    resume: ({ by } = {}) => hear(`${by}: resume`),
    ended: ended.promise,
    journalHead: hash,
  }
  const socket = path.join(await temporaryFolder('attach'), 'control.sock')
  const server = await ControlServer.open(socket, { run: service })
  onTestFinished(async () => {
    // The server gives a watcher of a run that continues three seconds for the end.
    feed.end()
    ended.resolve(state)
    await server[Symbol.asyncDispose]()
  })
  const scripted: Scripted = {
    ...service,
    said,
    problem: undefined,
    emit,
    ask: (approvalId) => queue.ask({ ...question, runId, approvalId }),
    askPlan: (approvalId, plan) =>
      queue.ask({ ...question, runId, approvalId, tool: 'submit_plan', arguments: JSON.stringify(plan) }),
    askUser: (approvalId, asked) =>
      queue.ask({ ...question, runId, approvalId, tool: 'ask_user', question: asked }),
    askAccess: (approvalId) =>
      new Promise((resolve) => {
        void queue.ask({ ...question, runId, approvalId }, undefined, {
          access: {
            from: 'agent',
            address: 'https://a.example/',
            because: '',
            offers: [
              { reach: 'host', allows: 'a' },
              { reach: 'suffix', allows: 'b' },
            ],
          },
          call: { tool: 'request_access', arguments: '{}' },
          known: () => undefined,
          unattended: { decision: 'deny', scope: 'once', by: 'mode' },
          apply: async (ruling) => {
            resolve(ruling)
            return { decision: ruling.decision }
          },
        })
      }),
    finish: () => {
      const end = { outcome: 'completed', reason: 'completed', message: '', summary: 'done' } as const
      const usage = { requests: 0, inputTokens: 0, outputTokens: 0, reasoningTokens: 0 }
      void emit({ type: 'run-end', ...end, usage, durationMs: 1 })
      feed.end()
      ended.resolve(state)
    },
    cancels,
    socket,
    server,
  }
  return scripted
}

const typesOf = async (client: RunClient): Promise<string[]> => {
  const types: string[] = []
  for await (const item of client.watch()) types.push(item.source === 'delta' ? 'delta' : item.event.type)
  return types
}

describe('an attached run', () => {
  it('is shown from its start on and to its end, with its result and the journal’s head [V.08 H.05]', async () => {
    const run = await scriptedRun()
    await run.emit({ type: 'session-start', session: 1, resumed: false })
    const client = await RunClient.connect(runId, run.socket)
    const seen = typesOf(client)
    await run.emit({ type: 'egress-denied', target: 't', reason: 'r' })
    run.finish()
    expect(await seen).toEqual(['session-start', 'egress-denied', 'run-end'])
    expect(await client.result()).toMatchObject({
      runId,
      outcome: 'completed',
      summary: 'done',
      changes: null,
      usage: { requests: 0 },
      journalHead: hash,
    })
    expect(await client.ended).toMatchObject({
      kind: 'ended',
      end: { outcome: 'completed' },
      journalHead: hash,
    })
  })

  it('is not held by a watcher that stands still, which gets the rest when it reads again [R.02 V.08]', async () => {
    const run = await scriptedRun()
    const stalled = await askControl(run.socket, { op: 'run/watch' })
    const client = await RunClient.connect(runId, run.socket)
    let seen = 0
    void (async () => {
      for await (const item of client.watch()) if (item.source === 'host') seen += 1
    })()
    const count = 3_000
    const text = (at: number) => `${at} ${'x'.repeat(4_000)}`
    for (let at = 0; at < count; at += 1)
      await run.emit({ type: 'steer-request', messageId: `m-${at}`, text: text(at), by: 'Ann' })
    await until(() => seen === count, 'all events at the watcher that reads')
    const decision = run.ask('a1')
    await until(() => client.hasPendingApproval('a1'), 'the question')
    expect(await client.answer('a1', { decision: 'allow', scope: 'once' })).toEqual({ taken: true })
    expect(await decision).toEqual({ decision: 'allow' })
    run.finish()
    expect(await client.ended).toMatchObject({ kind: 'ended' })
    const texts: unknown[] = []
    for (let frame = await stalled.next(); frame !== null; frame = await stalled.next()) {
      const { type, event } = WatchOutput.parse(stalled.parseJson(frame)) as {
        type: string
        event?: JournalEvent
      }
      if (type === 'end') break
      if (event?.event.type === 'steer-request') texts.push(event.event.text)
    }
    expect(texts).toEqual(Array.from({ length: count }, (_, at) => text(at)))
  })

  it('can be answered, the first answer decides, and the other watcher’s question is withdrawn [V.08 S1.11]', async () => {
    const run = await scriptedRun()
    const [first, second] = [
      await RunClient.connect(runId, run.socket),
      await RunClient.connect(runId, run.socket),
    ]
    const decision = run.ask('a1')
    await until(() => first.hasPendingApproval('a1') && second.hasPendingApproval('a1'), 'the question')
    const withdrawn = second.whenResolved('a1')
    const no = { decision: 'deny', scope: 'once', hint: 'keep it' } as const
    expect(await first.answer('a1', no, { by: 'Ann' })).toEqual({ taken: true })
    expect(await second.answer('a1', { decision: 'allow', scope: 'once' })).toMatchObject({
      taken: false,
      reason: 'decided',
      message: expect.stringContaining('denied by Ann (control)'),
    })
    await first.detach()
    for await (const item of second.watch()) {
      if (item.source !== 'host' || item.event.type !== 'approval-decision') continue
      expect(item.event).toMatchObject({ decision: 'deny', by: 'person', name: 'Ann', via: 'control' })
      break
    }
    expect(await decision).toEqual({ decision: 'deny', hint: 'keep it' })
    await withdrawn
    expect(second.hasPendingApproval('a1')).toBe(false)
  })

  it('may answer a question about network access: for how long, how far, and nothing that is not offered [V.08 S1.11]', async () => {
    const run = await scriptedRun()
    const client = await RunClient.connect(runId, run.socket)
    const answered = run.askAccess('a1')
    await until(() => client.hasPendingApproval('a1'), 'the question')
    expect(await client.answer('a1', { decision: 'allow', scope: 'run', reach: 'path' })).toMatchObject({
      taken: false,
    })
    expect(await client.answer('a1', { decision: 'allow', scope: 'always', reach: 'suffix' })).toMatchObject({
      taken: true,
    })
    expect(await answered).toMatchObject({
      decision: 'allow',
      scope: 'always',
      reach: 'suffix',
      by: 'person',
    })
  })

  it('may answer a question about a plan with another one, and not with what is none [V.08 S1.11 A.11]', async () => {
    const run = await scriptedRun()
    const client = await RunClient.connect(runId, run.socket)
    const plan = Plan.parse({ goal: 'g', steps: [{ id: 'a', title: 'A', instructions: 'do' }] })
    const decision = run.askPlan('p1', plan)
    await until(() => client.hasPendingApproval('p1'), 'the question')
    const mine = { ...plan, goal: 'mine' }
    expect(await client.answer('p1', { decision: 'deny', scope: 'once', plan: mine })).toMatchObject({
      taken: false,
    })
    expect(await client.answer('p1', { decision: 'allow', scope: 'once', plan: mine })).toMatchObject({
      taken: true,
    })
    expect(await decision).toEqual({ decision: 'allow', plan: mine })
  })

  it('may answer a question of the agent, in its form; what is none leaves the connection as it is [V.08 S2.16]', async () => {
    const run = await scriptedRun()
    const [first, second] = await Promise.all([
      RunClient.connect(runId, run.socket),
      RunClient.connect(runId, run.socket),
    ])
    const decision = run.askUser('q1', { question: 'How many?', kind: 'number' })
    await until(() => first.hasPendingApproval('q1') && second.hasPendingApproval('q1'), 'the question')
    for (const answer of ['3', Number.NaN, true])
      expect(await first.answer('q1', { decision: 'allow', scope: 'once', answer })).toMatchObject({
        taken: false,
      })
    expect(await first.answer('q1', { decision: 'allow', scope: 'once', answer: 3 })).toMatchObject({
      taken: true,
    })
    expect(await second.answer('q1', { decision: 'allow', scope: 'once', answer: 4 })).toMatchObject({
      taken: false,
    })
    expect(await decision).toEqual({ decision: 'allow', answer: 3 })
    await second.whenResolved('q1')
  })

  it('has one sub-agent steered and cancelled by its path, and refuses what is no path [V.08 A.08]', async () => {
    const run = await scriptedRun()
    const client = await RunClient.connect(runId, run.socket)
    const by = 'you'
    await client.steer('use tabs', { by, to: 'tests' })
    await client.steer('and you?', { by, to: 'root' })
    await client.cancelAgent('root/tests/unit', { by, reason: 'enough' })
    const said = ['you to root/tests: use tabs', 'you: and you?', 'you cancels root/tests/unit: enough']
    expect(run.said).toEqual(said)
    for (const path of ['a\u001b[2Jb', '../x', '', 'root/', 'x'.repeat(1 << 20)]) {
      const wrong = { code: 'invalid_options', message: expect.stringContaining('not the path of an agent') }
      const steered = await client.steer('x', { to: path }).catch((error: Error) => error)
      expect(steered).toMatchObject(wrong)
      expect((steered as Error).message).not.toContain('\u001b')
      expect((steered as Error).message.length).toBeLessThan(1_000)
      await expect(client.cancelAgent(path)).rejects.toMatchObject(wrong)
    }
    await expect(client.cancelAgent('root')).rejects.toThrow('root is the run itself')
    const long = 'x'.repeat(1 << 20)
    await expect(client.steer(long, { to: 'tests' })).rejects.toThrow('longer than')
    await expect(client.cancelAgent('tests', { reason: long })).rejects.toThrow('longer than')
    run.problem = 'no sub-agent root/gone is at work; none is'
    await expect(client.cancelAgent('gone')).rejects.toMatchObject({
      code: 'not_possible_now',
      message: 'no sub-agent root/gone is at work; none is',
    })
    expect(run.said).toEqual(said)
  })

  it('can be steered, paused and resumed, in order, and learns what is not taken [V.08 A.08 H.05]', async () => {
    const run = await scriptedRun()
    const client = await RunClient.connect(runId, run.socket)
    const by = 'you'
    await client.steer('use tabs', { by })
    await client.pause({ by })
    await client.resume({ by })
    expect(run.said).toEqual(['you: use tabs', 'you: pause', 'you: resume'])
    run.problem = 'the run has ended'
    await expect(client.steer('late')).rejects.toMatchObject({
      code: 'not_possible_now',
      message: 'the run has ended',
    })
    await expect(client.steer('x'.repeat(20_000))).rejects.toThrow('longer than')
    await run.server[Symbol.asyncDispose]()
    await expect(client.pause()).rejects.toMatchObject({
      code: 'connection_lost',
      message: expect.stringContaining('no host process answers'),
    })
    expect(run.said).toHaveLength(3)
  })

  it('does not ask again what was decided before [V.08 S1.11]', async () => {
    const run = await scriptedRun()
    const decision = run.ask('a1')
    await run.answer('a1', { decision: 'allow', scope: 'once' })
    await decision
    const client = await RunClient.connect(runId, run.socket)
    run.finish()
    expect(await typesOf(client)).toEqual(['approval-request', 'approval-decision', 'run-end'])
    expect(client.hasPendingApproval('a1')).toBe(false)
  })

  it('is cancelled each time by processes that do not stay to watch, however much it would have to tell [V.08]', async () => {
    const run = await scriptedRun()
    for (let at = 0; at < 200; at++)
      await run.emit({ type: 'egress-denied', target: 't'.repeat(400), reason: 'r' })
    const client = pathToFileURL(path.join(import.meta.dirname, '../../control/run-client.ts')).href
    const program = `const { cancelRunAt } = await import(${JSON.stringify(client)})
      for (let at = 0; at < 300; at++) await cancelRunAt(${JSON.stringify(run.socket)}, { by: 'x', now: false })`
    const args = ['--conditions=caisson-source', '--input-type=module', '--eval', program]
    await promisify(execFile)(process.execPath, args, { timeout: 60_000 })
    expect(run.cancels).toHaveLength(300)
    await expect(cancelRunAt(`${run.socket}.gone`, { by: 'x', now: false })).rejects.toMatchObject({
      code: 'connection_lost',
    })
  }, 60_000)

  it('can be cancelled, and left without harm [V.08]', async () => {
    const run = await scriptedRun()
    const client = await RunClient.connect(runId, run.socket)
    await client.cancel({ by: 'somebody' })
    await client.cancel({ by: 'somebody', now: true })
    await until(() => run.cancels.length === 2, 'both')
    expect(run.cancels).toEqual([
      ['somebody', false],
      ['somebody', true],
    ])
    await client.detach()
    expect(await client.ended).toEqual({ kind: 'left' })
    await expect(client.result()).rejects.toMatchObject({ code: 'connection_lost' })
    await run.emit({ type: 'egress-denied', target: 't', reason: 'r' })
    const next = await RunClient.connect(runId, run.socket)
    run.finish()
    expect(await typesOf(next)).toEqual(['egress-denied', 'run-end'])
  })

  it('is not served any more once its watcher has left, so that the end of the server need not wait [V.08]', async () => {
    const run = await scriptedRun()
    await run.emit({ type: 'egress-denied', target: 't', reason: 'r' })
    const client = await RunClient.connect(runId, run.socket)
    await client.watch().next()
    await client.detach()
    const startedAt = performance.now()
    await run.server[Symbol.asyncDispose]()
    expect(performance.now() - startedAt).toBeLessThan(2_000)
  })

  it('is reported as lost when its process goes without an end [V.08]', async () => {
    const run = await scriptedRun()
    await run.emit({ type: 'egress-denied', target: 't', reason: 'r' })
    const client = await RunClient.connect(runId, run.socket)
    const items: FeedItem[] = []
    const watching = (async () => {
      for await (const item of client.watch()) items.push(item)
    })()
    await expect.poll(() => items.length).toBeGreaterThan(0)
    await run.server[Symbol.asyncDispose]()
    expect(await client.ended).toMatchObject({ kind: 'lost' })
    await watching
    const [first] = items
    expect(items.at(-1)).toMatchObject({
      source: 'delta',
      delta: { type: 'run-interrupted', lastAt: first?.source === 'delta' ? 0 : first?.at },
    })
    await expect(RunClient.connect(runId, run.socket)).rejects.toMatchObject({
      code: 'connection_lost',
    })
  })
})
