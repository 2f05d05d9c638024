// Answers to runs that no process carries out: real journals and real processes, no VM.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { writeFile } from 'node:fs/promises'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { describe, expect, it } from 'vitest'
import { digestOfQuestion } from '#specs/node/question-digest.ts'
import type { HostEvent } from '#specs/protocol/event.ts'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { type AnswerResult, ApprovalQueue } from '../../approvals/queue.ts'
import { Host } from '../../host.ts'
import { RunRecord } from '../../journal/run-record.ts'
import { Past } from '../../runs/past.ts'
import { prepareFolders } from '../../state/folders.ts'
import type { AnsweringOrder } from '../support/answering-host.ts'
import { runId, runStart } from '../support/run-values.ts'

const PROGRAM = fileURLToPath(new URL('../support/answering-host.ts', import.meta.url))
const checkpointId = 'cp-0d4f1a8be2c6937f'
const call = { agentPath: 'root', stepId: 's', callId: 'c', preview: '' }

/** A run whose process is gone after these events. */
async function stoppedRun(events: readonly HostEvent[]) {
  const home = await temporaryFolder('stored')
  const host = new Host({ env: { ...process.env, CAISSON_HOME: home } })
  await prepareFolders(host.folders)
  const paths = await host.runs.create(runId)
  await writeFile(paths.options, '{}')
  {
    await using record = await RunRecord.open(paths)
    await record.host(runStart)
    for (const event of events) await record.host(event)
  }
  return { host, home, paths }
}

const asked = (approvalId: string, tool = 'delete_file', given = '{"path":"a"}'): HostEvent => ({
  type: 'approval-request',
  kind: 'cooperative',
  digest: '0'.repeat(64),
  request: { ...call, approvalId, tool, arguments: given },
  answers: [{ label: 'yes, this once', decision: 'allow', scope: 'once' }],
})
const slept: HostEvent = { type: 'run-sleep', checkpointId }

async function answeringProcess(home: string, order: AnsweringOrder) {
  const child = spawn(process.execPath, ['--conditions=caisson-source', PROGRAM, JSON.stringify(order)], {
    env: { ...process.env, CAISSON_HOME: home },
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  let said = ''
  const ready = Promise.withResolvers<void>()
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    said += text
    if (said.includes('ready\n')) ready.resolve()
  })
  const result = once(child, 'close').then(() => JSON.parse(said.slice('ready\n'.length)) as AnswerResult)
  await Promise.race([ready.promise, result])
  return { result }
}

describe('an approval of a run without a process', () => {
  it('is decided by the first of several processes; the others learn who it was [R.12 S2.16]', async () => {
    const { host, home } = await stoppedRun([asked('ap-1'), slept])
    const go = path.join(home, 'go')
    const names = ['ada', 'bob', 'cyd', 'dan']
    const processes = await Promise.all(
      names.map((by, at) =>
        answeringProcess(home, {
          ...{ runId, approvalId: 'ap-1', by, go },
          decision: at % 2 === 0 ? 'allow' : 'deny',
        }),
      ),
    )
    await writeFile(go, '')
    const results = await Promise.all(processes.map(({ result }) => result))
    const winner = names[results.findIndex(({ taken }) => taken)] ?? ''
    expect(results.filter(({ taken }) => taken)).toHaveLength(1)
    for (const result of results) if (!result.taken) expect(result).toMatchObject({ reason: 'decided' })
    for (const result of results)
      if (!result.taken) expect(result.message).toContain(`by ${winner} (journal)`)
    const decisions = (await host.runs.read(runId)).filter(({ event }) => event.type === 'approval-decision')
    expect(decisions.map(({ event }) => event)).toMatchObject([
      { name: winner, via: 'journal', by: 'person' },
    ])
    expect(await host.runs.pendingApprovals()).toEqual([])
  }, 60_000)

  it('accepts what the live queue accepts, and no more [R.12 S2.16]', async () => {
    const question = { question: 'Which?', kind: 'text' } as const
    const { host } = await stoppedRun([
      asked('ap-1', 'run_bash', '{"command":"ls"}'),
      {
        type: 'approval-request',
        kind: 'cooperative',
        digest: '0'.repeat(64),
        request: { ...call, approvalId: 'ask-1', tool: 'ask_user', arguments: '{}', question },
      },
    ])
    const yes = { decision: 'allow', scope: 'once' } as const
    const refused = { taken: false, reason: 'not_offered' }
    expect(await host.answer(runId, 'ap-1', { ...yes, scope: 'always' })).toMatchObject(refused)
    // The same command for the run was not offered here.
    expect(await host.answer(runId, 'ap-1', { ...yes, scope: 'run', reach: 'command' })).toMatchObject(
      refused,
    )
    expect(await host.answer(runId, 'ap-1', { decision: 'perhaps' } as never)).toMatchObject(refused)
    expect(await host.answer(runId, 'ask-1', yes)).toMatchObject(refused)
    const [, { approval } = { approval: undefined }] = await host.runs.pendingApprovals(runId)
    const digest = digestOfQuestion({ runId, approval })
    const changed = { taken: false, reason: 'question_changed' }
    expect(
      await host.answer(runId, 'ask-1', { ...yes, answer: 'this', digest: '0'.repeat(64) }),
    ).toMatchObject(changed)
    expect(await host.answer(runId, 'ap-9', yes)).toMatchObject({ taken: false, reason: 'unknown' })
    expect(await host.answer(runId, '__proto__', yes)).toMatchObject({ taken: false, reason: 'unknown' })
    expect(await host.answer(runId, 'ask-1', { ...yes, answer: 'this', digest })).toEqual({ taken: true })
    await expect(host.answer(runId, 'ap-1', yes)).resolves.toEqual({ taken: true })
  })

  it('is not answered once the run has ended [R.12]', async () => {
    const { paths, host } = await stoppedRun([asked('ap-1')])
    {
      await using record = await RunRecord.open(paths)
      const usage = { requests: 0, inputTokens: 0, outputTokens: 0, reasoningTokens: 0 }
      const end = { outcome: 'failed', reason: 'environment', message: '', summary: '' } as const
      await record.host({ type: 'run-end', ...end, usage, durationMs: 1 })
    }
    const answer = host.answer(runId, 'ap-1', { decision: 'allow', scope: 'once' })
    await expect(answer).rejects.toMatchObject({ code: 'not_possible_now' })
  })

  it('has its answer for the agent that continues, once, and one for the run for all its calls [R.12]', async () => {
    const { host, paths } = await stoppedRun([asked('ap-1'), slept])
    expect(await host.answer(runId, 'ap-1', { decision: 'allow', scope: 'run' })).toEqual({ taken: true })
    const past = new Past(checkpointId)
    await host.runs.visit(runId, (line) => past.next(line))
    const events: HostEvent[] = []
    const queue = new ApprovalQueue({
      mode: 'ask',
      rules: [],
      interactive: true,
      record: async (event) => events.push(event),
    })
    queue.restore(runId, past)
    const request = { ...call, runId, tool: 'delete_file', arguments: '{"path":"a"}' }
    expect(await queue.ask({ ...request, approvalId: 'ap-2' })).toMatchObject({ decision: 'allow' })
    // What the journal has already is not written again.
    expect(events).toEqual([])
    const other = { ...request, callId: 'd', arguments: '{"path":"b"}', approvalId: 'ap-3' }
    expect(await queue.ask(other)).toMatchObject({ decision: 'allow' })
    expect(queue.answer('ap-1', { decision: 'deny', scope: 'once' })).toMatchObject({ reason: 'decided' })
    expect(paths.runId).toBe(runId)
  })
})

describe('an answer for the run', () => {
  /** What another agent that continues the run is answered without a person. */
  async function continuing(host: Host) {
    const past = new Past(checkpointId)
    await host.runs.visit(runId, (line) => past.next(line))
    const options = { mode: 'ask', rules: [], interactive: true } as const
    const queue = new ApprovalQueue({ ...options, record: async () => undefined })
    queue.restore(runId, { decided: [], runAnswers: past.runAnswers })
    return queue
  }
  const request = { ...call, callId: 'e', runId, tool: 'delete_file', arguments: '{"path":"c"}' }

  it('is listed and revoked without a process of the run, and stays revoked for who continues it [R.12 S1.11]', async () => {
    const { host } = await stoppedRun([asked('ap-1'), asked('ap-2', 'move_file')])
    const yes = { decision: 'allow', scope: 'run' } as const
    expect(await host.runs.runAnswers(runId)).toEqual([])
    await host.answer(runId, 'ap-1', { ...yes, forMs: 3_600_000 }, { by: 'ann' })
    await host.answer(runId, 'ap-2', yes, { by: 'bob' })
    expect(await host.runs.runAnswers(runId)).toEqual([
      {
        ...{ approvalId: 'ap-1', decision: 'allow', tool: 'delete_file', name: 'ann' },
        until: expect.any(Number),
      },
      { approvalId: 'ap-2', decision: 'allow', tool: 'move_file', name: 'bob' },
    ])
    const before = await continuing(host)
    expect(await before.ask({ ...request, approvalId: 'ap-3' })).toEqual({ decision: 'allow' })
    await host.revokeAnswer(runId, 'ap-1', { by: 'cyd' })
    expect(await host.runs.runAnswers(runId)).toMatchObject([{ approvalId: 'ap-2' }])
    const after = await continuing(host)
    void after.ask({ ...request, approvalId: 'ap-3' })
    await expect.poll(() => after.pending).toEqual(['ap-3'])
    expect(await after.ask({ ...request, approvalId: 'ap-4', tool: 'move_file' })).toEqual({
      decision: 'allow',
    })
    await expect(host.revokeAnswer(runId, 'ap-1')).rejects.toMatchObject({
      code: 'not_possible_now',
      remedy: expect.stringContaining('caisson approvals remembered'),
    })
    expect((await host.runs.read(runId)).at(-1)?.event).toEqual({
      type: 'approval-revoke',
      approvalId: 'ap-1',
      by: 'cyd',
    })
  })

  it('about network access is listed with what it allows, and revoked likewise [R.12 G.03 S1.11]', async () => {
    const address = 'https://api.example.com/v1/rates'
    const offers = [{ reach: 'host' as const, allows: 'https connections to api.example.com (port 443)' }]
    const access = { from: 'agent' as const, address, because: 'no rule allows it', offers }
    const question = asked('ap-1', 'request_access', JSON.stringify({ url: address }))
    if (question.type !== 'approval-request') expect.fail('not a question')
    const { host } = await stoppedRun([{ ...question, kind: 'enforced', access }])
    const yes = { decision: 'allow', scope: 'run' } as const
    expect(await host.answer(runId, 'ap-1', { ...yes, reach: 'suffix' })).toMatchObject({ taken: false })
    expect(await host.answer(runId, 'ap-1', yes, { by: 'ann' })).toEqual({ taken: true })
    expect(await host.runs.runAnswers(runId)).toEqual([
      {
        ...{ approvalId: 'ap-1', decision: 'allow', tool: 'request_access', name: 'ann' },
        access: { address, ...offers[0] },
      },
    ])
    const held = { decision: 'allow', reach: 'host', address }
    expect((await continuing(host)).networkAnswers).toEqual([held])
    await host.revokeAnswer(runId, 'ap-1', { by: 'cyd' })
    expect(await host.runs.runAnswers(runId)).toEqual([])
    expect((await continuing(host)).networkAnswers).toEqual([])
  })

  it('ends with the run [R.12]', async () => {
    const { host, paths } = await stoppedRun([asked('ap-1')])
    await host.answer(runId, 'ap-1', { decision: 'allow', scope: 'run' })
    {
      await using record = await RunRecord.open(paths)
      const usage = { requests: 0, inputTokens: 0, outputTokens: 0, reasoningTokens: 0 }
      const end = { outcome: 'failed', reason: 'environment', message: '', summary: '' } as const
      await record.host({ type: 'run-end', ...end, usage, durationMs: 1 })
    }
    expect(await host.runs.runAnswers(runId)).toEqual([])
    await expect(host.revokeAnswer(runId, 'ap-1')).rejects.toMatchObject({ code: 'not_possible_now' })
  })
})

describe('the status of a run that has not ended', () => {
  const statusIn = async (host: Host) => {
    const [{ status, since, pendingApprovals } = expect.fail('no run')] = await host.runs.list()
    return { status, isSince: since !== undefined, pendingApprovals }
  }

  it('says whether a process works, waits for a person, sleeps or is gone, and since when [R.12 H.01]', async () => {
    const { host, paths } = await stoppedRun([])
    expect(await statusIn(host)).toEqual({ status: 'interrupted', isSince: true, pendingApprovals: 0 })
    {
      await using record = await RunRecord.open(paths)
      expect(await statusIn(host)).toEqual({ status: 'running', isSince: false, pendingApprovals: 0 })
      await record.host(asked('ap-1'))
      expect(await statusIn(host)).toEqual({ status: 'waiting', isSince: true, pendingApprovals: 1 })
      await record.host(slept)
      expect(await statusIn(host)).toEqual({ status: 'sleeping', isSince: true, pendingApprovals: 1 })
    }
    expect(await statusIn(host)).toEqual({ status: 'sleeping', isSince: true, pendingApprovals: 1 })
    expect((await host.runs.page({ filter: { status: 'sleeping' } })).runs).toHaveLength(1)
    expect((await host.runs.page({ filter: { status: 'interrupted' } })).runs).toHaveLength(0)
    {
      await using record = await RunRecord.open(paths)
      await record.host({ type: 'run-resume', epoch: 2, checkpointId, message: 'the run slept' })
      expect(await statusIn(host)).toEqual({ status: 'running', isSince: false, pendingApprovals: 0 })
    }
  })
})
