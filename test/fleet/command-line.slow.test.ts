// The command line beside services of a fleet, on runs that other hosts carry out.
import { access, readFile } from 'node:fs/promises'
import path from 'node:path'
import { PassThrough } from 'node:stream'
import { stripVTControlCharacters } from 'node:util'
import { expect, it } from 'vitest'
import { userName } from '../../host/cli/io.ts'
import { runCli } from '../../host/cli/main.ts'
import { Person } from '../../host/test/cli/support/person.ts'
import { commandsIn } from '../../host/test/support/run-command.ts'
import {
  envAt,
  eventsOf,
  model,
  node,
  refusalOf,
  start,
  startEnded,
  statusOf,
  useThreeNodes,
  waiting,
  workspace,
} from './three-nodes.ts'

useThreeNodes()

const caissonAt = (at: number, directory?: string) => commandsIn(envAt(at), directory)

it('the command line beside a service of the fleet lists and shows runs of all hosts, and says who has one or why it waits', async () => {
  model.hold()
  const caisson = caissonAt(2)
  const run = await start({ step: 'hang', workspace })
  await expect.poll(() => statusOf(run), waiting).toBe('running')
  // A host may have it before its first line.
  const listed = async () => (await caisson('runs', 'list', '--filter', 'status=running')).stdout
  await expect.poll(listed, waiting).toMatch(new RegExp(`${run}  .+please hang · on host one`))
  const show = async () => await caisson('runs', 'show', run)
  await expect.poll(async () => (await show()).stdout, waiting).toContain(`Run in ${workspace}`)
  const shown = await show()
  expect(shown.stdout).not.toContain('Interrupted')
  expect(shown.stdout).toMatch(/\nthe host one of the fleet carries it out since /)
  const json = await caisson('runs', 'show', run, '--json')
  expect(JSON.parse(json.stdout.split('\n')[0] ?? '')).toMatchObject({
    runId: run,
    event: { type: 'run-start' },
  })
  expect((await caisson('workspace', 'diff', run)).stderr).toContain(
    `${run} has not ended, so it has no changes yet; follow it to its end: caisson attach ${run}`,
  )
  const queued = await start({ workspace, labels: ['gpu'] })
  const why = await caisson('runs', 'show', queued)
  expect(why.stdout).toMatch(/queued .+please write/)
  expect(why.stdout).toContain('No host can serve it: one has no label gpu')
  const last = await caisson('runs', 'list', '--last', '1', '--json')
  expect(JSON.parse(last.stdout)).toMatchObject({ id: queued, status: 'queued', host: null })
  expect(await caisson('runs', 'show', 'run-00000000000000000000')).toMatchObject({ code: 2 })
  for (const each of [run, queued])
    await node(2).client.call('cancelRun', { params: { run: each }, body: { now: true } })
  await expect.poll(() => statusOf(run), waiting).toBe('cancelled')
}, 120_000)

it('caisson run --fleet starts a run of the fleet, follows it, and applies its changes here; what the fleet refuses runs nowhere', async () => {
  const caisson = caissonAt(2, workspace)
  const task = ['run', '--fleet', '-w', workspace, 'please write'] as const
  const ran = await caisson(...task, '--apply')
  expect(ran).toMatchObject({ code: 0, stdout: expect.stringContaining('Applied 1 change.') })
  const run = /^Run (run-\S+) · journal head/m.exec(ran.stdout)?.[1] ?? ''
  expect(await node(1).client.call('getRun', { params: { run } })).toMatchObject({
    status: 'completed',
    applied: 1,
  })
  expect(await readFile(path.join(workspace, 'made.txt'), 'utf8')).toBe('made\n')
  expect(await caisson('workspace', 'undo', run)).toMatchObject({ code: 0 })
  const asJson = await caisson(...task, '--json')
  const lines = asJson.stdout
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line) as { source: string; runId: string })
  expect(lines.at(-1)).toMatchObject({ source: 'summary', changes: 1, apply: null })
  const left = await caisson(...task, '--detach')
  const [detached = ''] = /run-[0-9a-f]{20}/.exec(left.stdout) ?? []
  await expect.poll(() => statusOf(detached), waiting).toBe('completed')
  const continued = await caisson(...task, '--continue', detached)
  expect(continued).toMatchObject({ code: 5, stdout: expect.stringContaining('+made') })
  const [, next = ''] = /^Run (run-\S+) · journal head/m.exec(continued.stdout) ?? []
  expect(await node(1).client.call('getRun', { params: { run: next } })).toMatchObject({
    continues: detached,
  })
  const { CAISSON_HOME, CAISSON_CACHE } = envAt(2)
  const other = await commandsIn({ CAISSON_HOME, CAISSON_CACHE })(...task)
  expect(other).toMatchObject({
    ...{ code: 1, stdout: '' },
    stderr: expect.stringMatching(/caisson: --fleet: the service refused: .* or run it without --fleet\n$/),
  })
}, 120_000)

it('caisson run --fleet follows a run that its own host carries out from its first moment on', async () => {
  const caisson = caissonAt(0, workspace)
  for (let round = 0; round < 5; round += 1) {
    const { stdout, stderr } = await caisson('run', '--fleet', '-w', workspace, 'please write', '--json')
    const lines = stdout.trim().split('\n')
    expect([stderr, JSON.parse(lines[0] ?? '')]).toMatchObject(['', { seq: 1, event: { type: 'run-start' } }])
    expect(JSON.parse(lines.at(-1) ?? '')).toMatchObject({ source: 'summary', changes: 1, apply: null })
  }
}, 120_000)

it('the command line steers, pauses, continues and cancels a run at work on another host, under its own name', async () => {
  model.hold()
  const asked = () => model.asks('hang')
  const before = asked()
  const caisson = caissonAt(2, workspace)
  const run = await start({ step: 'hang', workspace })
  await expect.poll(() => statusOf(run), waiting).toBe('running')
  await expect.poll(asked, waiting).toBeGreaterThan(before)
  const last = `caisson: last is ${run}: please hang\n`
  expect(await caisson('runs', 'steer', 'last', 'Use tabs.')).toEqual({
    ...{ code: 0, stderr: last },
    stdout: `${run}: message sent to the agent\n`,
  })
  // No host has a folder of it here yet, so its prefix is one of the fleet's list.
  expect(await caisson('runs', 'steer', run.slice(0, 18), 'Use tabs.', '--agent', 'tests')).toMatchObject({
    ...{ code: 1, stdout: '' },
    stderr: expect.stringContaining(`caisson: ${run}: no sub-agent root/tests is at work`),
  })
  expect(await caisson('runs', 'pause', run)).toMatchObject({
    ...{ code: 0, stderr: '' },
    stdout: expect.stringContaining(`caisson runs resume ${run}`),
  })
  expect(await caisson('runs', 'resume', run, '--take-over')).toMatchObject({
    ...{ code: 2, stdout: '' },
    stderr: expect.stringContaining(`caisson fleet move ${run}`),
  })
  expect(await caisson('runs', 'resume', run)).toEqual({
    ...{ code: 0, stderr: '' },
    stdout: `${run}: the agent resumes\n`,
  })
  expect(await caisson('runs', 'cancel', run, '--now')).toEqual({
    ...{ code: 0, stderr: '' },
    stdout: `${run}: cancelled\n`,
  })
  const acts = (await eventsOf(run)).filter(({ type }) => type.endsWith('-request'))
  expect(acts).toMatchObject([
    { type: 'steer-request', text: 'Use tabs.', by: 'caisson runs steer' },
    { type: 'pause-request', by: 'caisson runs pause' },
    { type: 'resume-request', by: 'caisson runs resume' },
    { type: 'cancel-request', by: 'caisson runs cancel' },
  ])
  const late = await caisson('runs', 'pause', run)
  expect(late).toMatchObject({ code: 1, stderr: expect.stringContaining(`caisson runs show ${run}`) })
  expect(await caisson('runs', 'rm', run)).toEqual({ code: 0, stdout: `removed ${run}\n`, stderr: '' })
  expect(await refusalOf(node(0).client.call('getRun', { params: { run } }))).toMatchObject({ status: 404 })
  expect(await caisson('runs', 'cancel', run)).toMatchObject({ code: 2, stdout: '' })
}, 120_000)

it('the command line cancels a run that waits in the queue, and continues one that sleeps; one that waits takes no message', async () => {
  const caisson = caissonAt(2)
  const queued = await start({ workspace, labels: ['gpu'] })
  const refused = await caisson('runs', 'steer', queued, 'Use tabs.')
  expect(refused.code).toBe(1)
  expect(refused.stderr).toContain(`${queued} is not at work; its status is queued`)
  expect(refused.stderr).toContain(`caisson runs cancel ${queued}`)
  const cancelled = await caisson('runs', 'cancel', queued)
  expect(cancelled).toEqual({ code: 0, stdout: `${queued}: cancelled\n`, stderr: '' })
  const sleeping = await start({ workspace, asks: true, sleepAfterMs: 200 })
  await expect.poll(() => statusOf(sleeping), waiting).toBe('sleeping')
  expect((await caisson('runs', 'pause', sleeping)).stderr).toContain(`caisson approvals list ${sleeping}`)
  expect(await caisson('runs', 'resume', sleeping, '--detach')).toEqual({
    ...{ code: 0, stderr: '' },
    stdout: `${sleeping}: the next free host of the fleet continues it\n  watch:   caisson attach ${sleeping}\n`,
  })
  await expect
    .poll(async () => (await eventsOf(sleeping)).map(({ type }) => type), waiting)
    .toContain('run-resume')
  await expect.poll(() => statusOf(sleeping), waiting).toBe('sleeping')
  const following = caisson('runs', 'resume', sleeping)
  await expect
    .poll(async () => (await eventsOf(sleeping)).filter(({ type }) => type === 'run-resume').length, waiting)
    .toBe(2)
  // Between its start and the question that it asks again, nothing waits.
  await expect.poll(async () => (await caisson('approvals', 'deny', sleeping, 'a')).code, waiting).toBe(0)
  const followed = await following
  expect(followed).toMatchObject({
    code: 0,
    stdout: expect.stringContaining(`Run ${sleeping} · journal head`),
  })
  const other = await start({ workspace, asks: true, sleepAfterMs: 200 })
  await expect.poll(() => statusOf(other), waiting).toBe('sleeping')
  expect((await caisson('runs', 'cancel', other)).stdout).toBe(`${other}: cancelled\n`)
  expect(await statusOf(other)).toBe('cancelled')
}, 120_000)

it('the command line lists the questions of all hosts and answers them, at work or sleeping, once [S1.11]', async () => {
  const caisson = caissonAt(2)
  for (const sleepAfterMs of [undefined, 200]) {
    const sleeps = sleepAfterMs === undefined ? {} : { sleepAfterMs }
    const run = await start({ workspace, asks: true, ...sleeps })
    await expect.poll(() => statusOf(run), waiting).toBe(sleepAfterMs === undefined ? 'waiting' : 'sleeping')
    const listed = await caisson('approvals', 'list')
    const line = new RegExp(`^${run}  (\\S+)  .*asks? (?:to call|about) run_bash .*made.txt`, 'm')
    const approval = line.exec(listed.stdout)?.[1] ?? listed.stdout
    const json = (await caisson('approvals', 'list', run, '--json')).stdout
    const { digest } = JSON.parse(json)
    expect(JSON.parse(json)).toMatchObject({ runId: run, approvalId: approval, tool: 'run_bash' })
    const other = await caisson('approvals', 'allow', run, approval, '--digest', '0'.repeat(64))
    expect(other).toMatchObject({
      code: 1,
      stderr: expect.stringContaining(`caisson approvals list ${run} --json`),
    })
    const wrong = await caisson('approvals', 'answer', run, approval, 'yes')
    expect(wrong).toMatchObject({ code: 2, stderr: expect.stringContaining('caisson approvals allow') })
    const none = await caisson('approvals', 'deny', run, 'nothing')
    expect(none).toMatchObject({ code: 2, stderr: expect.stringContaining(`pending: ${approval}`) })
    const given = ['approvals', 'allow', run, approval, '--digest', digest, '--scope', 'run']
    expect(await caisson(...given)).toEqual({
      ...{ code: 0, stderr: '' },
      stdout: `${run}: ${approval} answered\n`,
    })
    const again = await caisson('approvals', 'deny', run, approval)
    expect(again.code).toBe(1)
    expect(again.stderr).toMatch(/already allowed by .+; the first answer counts|has ended as completed/)
    await expect.poll(() => statusOf(run), waiting).toBe('completed')
    const decisions = (await eventsOf(run)).filter(({ type }) => type === 'approval-decision')
    expect(decisions).toMatchObject([{ by: 'person', name: userName(), decision: 'allow', scope: 'run' }])
  }
  const denied = await start({ workspace, asks: true })
  await expect.poll(() => statusOf(denied), waiting).toBe('waiting')
  expect((await caisson('approvals', 'deny', denied, 'a', '--hint', 'Do without.')).code).toBe(0)
  await expect.poll(() => statusOf(denied), waiting).toBe('completed')
  const decisions = (await eventsOf(denied)).filter(({ type }) => type === 'approval-decision')
  expect(decisions).toMatchObject([{ decision: 'deny', hint: 'Do without.' }])
}, 120_000)

it('the command line answers a question of an agent elsewhere, and revokes an answer for its run [S2.16 S1.11]', async () => {
  const caisson = caissonAt(2)
  const asking = await start({ step: 'ask', workspace })
  await expect.poll(() => statusOf(asking), waiting).toBe('waiting')
  const { stdout } = await caisson('approvals', 'list', asking)
  const [, approval = stdout] = /^run-\S+ {2}(\S+) {2}asks: Which format\? \(csv, json\)$/m.exec(stdout) ?? []
  const wrong = await caisson('approvals', 'answer', asking, approval, 'xml')
  expect(wrong).toMatchObject({ code: 2, stderr: expect.stringContaining('expected one of "csv", "json"') })
  expect((await caisson('approvals', 'answer', asking, approval, 'json')).code).toBe(0)
  await expect.poll(() => statusOf(asking), waiting).toBe('completed')
  const answered = (await eventsOf(asking)).find(({ type }) => type === 'approval-decision')
  expect(answered).toMatchObject({ answer: 'json', name: userName() })

  model.startTelling()
  const run = await start({ step: 'write then stop', workspace, asks: true })
  await expect.poll(() => statusOf(run), waiting).toBe('waiting')
  const allowed = await caisson('approvals', 'allow', run, 'a', '--scope', 'run')
  expect(allowed).toMatchObject({ code: 0, stderr: '' })
  await expect.poll(() => statusOf(run), waiting).toBe('running')
  const remembered = await caisson('approvals', 'remembered', run)
  const [, kept = remembered.stdout] =
    /^(\S+) {2}allowed by .+: every call of run_bash$/m.exec(remembered.stdout) ?? []
  expect(await caisson('approvals', 'revoke', run, kept)).toEqual({
    ...{ code: 0, stderr: '' },
    stdout: `${run}: the answer to ${kept} is revoked\n`,
  })
  expect((await caisson('approvals', 'remembered', run)).stdout).toContain('no answer')
  const revoked = (await eventsOf(run)).find(({ type }) => type === 'approval-revoke')
  expect(revoked).toEqual({ type: 'approval-revoke', approvalId: kept, by: userName() })
  await caisson('runs', 'cancel', run, '--now')
}, 120_000)

/** `caisson attach` at a terminal of the host "three". */
function attachAt(run: string): { readonly person: Person; readonly code: Promise<number> } {
  const person = new Person({ columns: 120, rows: 40 })
  const stdin = Object.assign(person.input, { isTTY: true, setRawMode: () => person.input })
  const stdout = Object.assign(person.output, { isTTY: true })
  const env = envAt(2)
  const io = { stdin, stdout, stderr: person.output, env, version: '0' }
  return { person, code: runCli(['attach', run], io) }
}

it('a person at a terminal follows a run of another host from the queue to its end, answers it and steers it [S1.11 V.08]', async () => {
  model.hold()
  model.startTelling()
  const asked = () => model.asks('write then stop')
  const busy = [await start({ step: 'hang', workspace }), await start({ step: 'hang', workspace })]
  for (const other of busy) await expect.poll(() => statusOf(other), waiting).toBe('running')
  const run = await start({ step: 'write then stop', workspace, asks: true, sleepAfterMs: 1_500 })
  const { person, code } = attachAt(run)
  const sees = async (text: string) =>
    await expect.poll(() => stripVTControlCharacters(person.raw), waiting).toContain(text)
  await sees('it waits for a host of the fleet, at place 1 of 1')
  for (const other of busy) await caissonAt(2)('runs', 'cancel', other, '--now')
  await sees('Allow it?')
  // The question outlives the sleep of its run, whose answer has it continued.
  await expect.poll(() => statusOf(run), waiting).toBe('sleeping')
  const before = asked()
  person.type('y\r')
  await expect.poll(asked, waiting).toBeGreaterThan(before)
  person.type('Use tabs.')
  await sees('Use tabs.')
  person.type('\r')
  await sees('What should the agent know?')
  person.type('\r')
  await expect
    .poll(() => eventsOf(run), waiting)
    .toContainEqual(expect.objectContaining({ type: 'steer-request', text: 'Use tabs.' }))
  model.finishTelling()
  expect(await code).toBe(0)
  await sees(`Run ${run} · journal head`)
  const events = await eventsOf(run)
  const decisions = events.filter(({ type }) => type === 'approval-decision')
  expect(decisions).toMatchObject([{ decision: 'allow', name: userName() }])
  expect(events.map(({ type }) => type)).toEqual(expect.arrayContaining(['run-sleep', 'run-resume']))
  const caisson = caissonAt(2)
  expect((await caisson('workspace', 'diff', run)).stdout).toContain('made.txt')
  const late = await caisson('attach', run)
  expect(late).toMatchObject({ code: 0, stdout: expect.stringContaining('It is done.') })
}, 120_000)

it('who leaves a run of another host leaves it at work, and lines of JSON follow and answer it', async () => {
  const run = await start({ workspace, asks: true })
  const { person, code } = attachAt(run)
  await expect.poll(() => stripVTControlCharacters(person.raw), waiting).toContain('Allow it?')
  person.type('\u0003')
  expect(await code).toBe(3)
  expect(person.raw).toContain(`Left ${run}, which continues.`)
  expect(await statusOf(run)).toBe('waiting')
  const [stdin, output] = [new PassThrough(), new PassThrough()]
  let said = ''
  output.setEncoding('utf8').on('data', (text: string) => (said += text))
  const env = envAt(2)
  const io = { stdin, stdout: output, stderr: new PassThrough().resume(), env, version: '0' }
  const ended = runCli(['attach', run, '--json'], io)
  const asked = /"type":"approval-request".*?"approvalId":"([^"]+)"/
  await expect.poll(() => said, waiting).toMatch(asked)
  stdin.write(`${JSON.stringify({ approvalId: asked.exec(said)?.[1], decision: 'allow', scope: 'once' })}\n`)
  expect(await ended).toBe(0)
  expect(JSON.parse(said.trimEnd().split('\n').at(-1) ?? '')).toMatchObject({
    ...{ source: 'summary', runId: run, outcome: 'completed' },
    journalHead: expect.stringMatching(/^[0-9a-f]{64}$/),
  })
}, 120_000)

it('the command line of a host where the run never was shows, explains, applies and undoes its changes, through the service', async () => {
  const caisson = caissonAt(1)
  const run = await startEnded({ workspace })
  const made = path.join(workspace, 'made.txt')
  expect((await caisson('runs', 'show', run)).stdout).toMatch(
    /\n\d+ events, as the fleet has them, head [0-9a-f]{64}\n/,
  )
  const diff = await caisson('workspace', 'diff', run)
  expect(diff).toMatchObject({ code: 0, stderr: '' })
  expect(diff.stdout).toMatch(/A made\.txt[\s\S]+\+made/)
  expect((await caisson('workspace', 'diff', run, '--patch')).stdout).toContain('+made')
  expect((await caisson('workspace', 'blame', run, 'made.txt')).stdout).toContain('made')
  expect(await caisson('workspace', 'show', run, 'made.txt')).toMatchObject({ code: 0, stdout: 'made\n' })
  expect(await caisson('workspace', 'apply', run, 'other.txt')).toMatchObject({ code: 2 })
  expect(await caisson('workspace', 'apply', run, 'made.txt')).toMatchObject({ code: 0 })
  expect(await readFile(made, 'utf8')).toBe('made\n')
  expect(await node(0).client.call('getRun', { params: { run } })).toMatchObject({ applied: 1 })
  const elsewhere = caissonAt(2)
  expect((await elsewhere('workspace', 'undo', run)).stderr).toContain(
    'were applied on the host two of the fleet',
  )
  const undone = await caisson('workspace', 'undo', run)
  expect(undone).toMatchObject({ code: 0, stdout: 'Restored 1 path.\n', stderr: '' })
  await expect(access(made)).rejects.toThrow()
  // The fleet knows it too.
  expect(await node(0).client.call('getRun', { params: { run } })).toMatchObject({ applied: 0 })
}, 120_000)

it('the command line forks, rewinds, compares and merges runs of other hosts, and hosts of the fleet continue them', async () => {
  const caisson = caissonAt(2)
  const run = await startEnded({ workspace })
  const forked = await caisson('runs', 'fork', run, '--at', 'start', '--count', '2')
  expect(forked).toMatchObject({ code: 0, stderr: '' })
  const forks = [...forked.stdout.matchAll(/^(run-\S+) is a fork of/gm)].map(([, id]) => id ?? '')
  expect(forks).toHaveLength(2)
  for (const id of forks) {
    expect(forked.stdout).toContain(`watch: caisson attach ${id}`)
    await expect.poll(() => statusOf(id), waiting).toBe('completed')
  }
  const compared = await caisson('runs', 'compare', ...forks)
  expect(compared).toMatchObject({ code: 0, stdout: expect.stringContaining('made.txt') })
  const merged = await caisson('runs', 'merge', ...forks)
  expect(merged).toMatchObject({ code: 0, stdout: expect.stringContaining('has 1 change of 2 runs') })
  const [mergedId = ''] = merged.stdout.split(' ')
  expect(await statusOf(mergedId, 1)).toBe('completed')
  const rewound = await caisson('runs', 'rewind', run, 'Use tabs.', '--to', 'start')
  expect(rewound).toMatchObject({ code: 0, stdout: expect.stringContaining('It is done.') })
  const kept = await caisson('runs', 'fork', run, '--at', 'start', '--no-start', '--json')
  const [kid = ''] = (JSON.parse(kept.stdout) as { runIds: string[] }).runIds
  expect(await statusOf(kid, 1)).toBe('sleeping')
  await node(1).client.call('cancelRun', { params: { run: kid }, body: {} })
}, 120_000)
