// A run with many questions at once, followed in a terminal; only the run's work is scripted.
import { PassThrough } from 'node:stream'
import { stripVTControlCharacters } from 'node:util'
import { expect, it } from 'vitest'
import { noUsage } from '#specs/protocol/task.ts'
import type { ApprovalAnswer } from '../../../approvals/queue.ts'
import { type FollowedRun, follow, followAsJson } from '../../../cli/commands/follow.ts'
import type { Io } from '../../../cli/io.ts'
import { ProgressView } from '../../../cli/render/progress.ts'
import { RunClient } from '../../../control/run-client.ts'
import { runAtWork, someCall } from '../../support/run-at-work.ts'
import { runId } from '../../support/run-values.ts'
import { Person } from '../support/person.ts'

it('says how many questions wait when it puts one of several [S1.11 H.01]', async () => {
  const { queue, record, end, env } = await runAtWork()
  const ids = Array.from({ length: 16 }, (_, at) => `ap-${at + 1}`)
  for (const approvalId of ids)
    void queue.ask({ ...someCall, approvalId, tool: 'delete_file', arguments: `{"path":"${approvalId}"}` })
  await expect.poll(() => Object.keys(record.state.pendingApprovals)).toHaveLength(16)
  const run = await RunClient.connect(runId, record.paths.control)
  await expect.poll(() => run.pendingCount).toBe(16)
  const stdout = new PassThrough()
  let shown = ''
  stdout.setEncoding('utf8').on('data', (text: string) => (shown += text))
  const io: Io = { stdin: new PassThrough(), stdout, stderr: new PassThrough(), env, version: '0' }
  const interrupts = { signal: new AbortController().signal, interrupt: () => undefined }
  using view = new ProgressView(stdout)
  const followed = follow(io, view, run, interrupts, { isInteractive: true, folder: '/nonexistent' })
  for (const [at, approvalId] of ids.entries()) {
    const count = ids.length - at
    await expect.poll(() => shown).toContain(`path: ${approvalId}\n`)
    expect(shown.includes('questions wait')).toBe(count > 1)
    if (count > 1) expect(shown).toContain(`${count} questions wait for an answer; the oldest of them:\n`)
    shown = ''
    queue.answer(approvalId, { decision: 'allow', scope: 'once' })
  }
  const ending = { outcome: 'completed', reason: 'completed', message: '', summary: '' } as const
  await end({ type: 'run-end', ...ending, usage: noUsage, durationMs: 1 })
  await followed
})

it('revokes an answer for the run by a JSON line, and says when there is none [S1.11]', async () => {
  const { queue, record, end, env } = await runAtWork()
  const call = { ...someCall, tool: 'delete_file', arguments: '{"path":"a"}' }
  const asked = queue.ask({ ...call, approvalId: 'ap-1' })
  await expect.poll(() => Object.keys(record.state.pendingApprovals)).toEqual(['ap-1'])
  const run = await RunClient.connect(runId, record.paths.control)
  await expect.poll(() => run.pendingCount).toBe(1)
  const [stdin, stderr] = [new PassThrough(), new PassThrough()]
  let problems = ''
  stderr.setEncoding('utf8').on('data', (text: string) => (problems += text))
  const io: Io = { stdin, stdout: new PassThrough().resume(), stderr, env, version: '0' }
  const followed = followAsJson(io, run, () => undefined)
  stdin.write('{"approvalId":"ap-1","decision":"allow","scope":"run","forMs":600000}\n')
  expect(await asked).toEqual({ decision: 'allow' })
  stdin.write('{"revoke":"ap-1"}\n{"revoke":"ap-9"}\n')
  await expect.poll(() => problems).toContain('not done: no answer of')
  expect(problems).toContain('"ap-9"')
  await expect.poll(() => record.state.runAnswers).toEqual({})
  const ending = { outcome: 'completed', reason: 'completed', message: '', summary: '' } as const
  await end({ type: 'run-end', ...ending, usage: noUsage, durationMs: 1 })
  await followed
})

it('says on standard error why a request or an answer by a JSON line was not done, and follows on [S1.11]', async () => {
  const { record, end, env } = await runAtWork()
  const client = await RunClient.connect(runId, record.paths.control)
  const refuse = async () => {
    throw new Error('its host\u001b[2J is away')
  }
  const run = {
    ...{ id: runId, watch: () => client.watch(), cancel: refuse, answer: refuse },
  } as unknown as FollowedRun
  const [stdin, stderr] = [new PassThrough(), new PassThrough()]
  let problems = ''
  stderr.setEncoding('utf8').on('data', (text: string) => (problems += text))
  const io: Io = { stdin, stdout: new PassThrough().resume(), stderr, env, version: '0' }
  const followed = followAsJson(io, run, () => undefined)
  const said = 'not done: its host\\e[2J is away\n'
  stdin.write('{"cancel":true}\n')
  await expect.poll(() => problems).toBe(said)
  stdin.write('{"approvalId":"ap-1","decision":"deny"}\n')
  await expect.poll(() => problems).toBe(said + said)
  const ending = { outcome: 'completed', reason: 'completed', message: '', summary: '' } as const
  await end({ type: 'run-end', ...ending, usage: noUsage, durationMs: 1 })
  await followed
})

it('puts a question again whose answer nobody took, and says why [S1.11 V.08]', async () => {
  const { queue, record, end, env } = await runAtWork()
  const asked = queue.ask({ ...someCall, approvalId: 'ap-1', tool: 'delete_file', arguments: '{}' })
  const run = await RunClient.connect(runId, record.paths.control)
  await expect.poll(() => run.pendingCount).toBe(1)
  const person = new Person()
  const stdin = Object.assign(person.input, { isTTY: true, setRawMode: () => person.input })
  const io: Io = { stdin, stdout: person.output, stderr: person.output, env, version: '0' }
  const message = 'the database\u001b[2J is away; start it'
  let answers = 0
  const lossy = {
    id: run.id,
    watch: () => run.watch(),
    hasPendingApproval: (id: string) => run.hasPendingApproval(id),
    pendingCount: 1,
    whenResolved: (id: string) => run.whenResolved(id),
    answer: async (id: string, answer: ApprovalAnswer) => {
      answers += 1
      return answers > 1 ? await run.answer(id, answer) : { taken: false, reason: 'connection_lost', message }
    },
  } as unknown as FollowedRun
  const interrupts = { signal: new AbortController().signal, interrupt: () => undefined }
  using view = new ProgressView(person.output)
  const options = { isInteractive: true, folder: '/nonexistent', quietMs: 0 }
  const followed = follow(io, view, lossy, interrupts, options)
  await person.sees('Type 1-4, y, n')
  person.type('y\r')
  await expect
    .poll(() => stripVTControlCharacters(person.raw))
    .toMatch(/Not answered: the database\\e\[2J is away; start it.*Type 1-4, y, n/s)
  person.type('n\r')
  expect(await asked).toEqual({ decision: 'deny' })
  expect(answers).toBe(2)
  const ending = { outcome: 'completed', reason: 'completed', message: '', summary: '' } as const
  await end({ type: 'run-end', ...ending, usage: noUsage, durationMs: 1 })
  await followed
})
