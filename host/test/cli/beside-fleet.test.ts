// Commands beside a service of a fleet: what they say of its words, and what they do where it fails.
import { PassThrough } from 'node:stream'
import { expect, it } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { followInFleet } from '../../cli/carried-run.ts'
import { attach } from '../../cli/commands/attach.ts'
import { Host } from '../../host.ts'
import { markFleet } from '../../journal/fleet-mark.ts'
import { changedRunId, runThatChanged } from '../support/changed-run.ts'
import { someCall } from '../support/run-at-work.ts'
import { commandsIn } from '../support/run-command.ts'
import { runId } from '../support/run-values.ts'
import { type Answer, besideFleet, fleetAt, refusal } from './support/fleet-stand-in.ts'
import { version } from './support/stand-in.ts'

const digest = 'd'.repeat(64)
const { runId: _, ...call } = { ...someCall, approvalId: 'ap-1', tool: 'delete_file', arguments: '{}' }

const asks = {
  ...{ source: 'host', runId, seq: 1, at: 1, prev: '0'.repeat(64), hash: '1'.repeat(64) },
  event: { type: 'approval-request', kind: 'cooperative', request: call, digest },
}

/** As the service lists it. */
function question(run: string) {
  return { runId: run, at: 1, digest, approval: { ...call, kind: 'cooperative' } }
}

/** Sends a signal to what has begun to listen for it since. */
function signals(): (name: 'SIGINT' | 'SIGTERM') => void {
  const before = { SIGINT: process.listeners('SIGINT'), SIGTERM: process.listeners('SIGTERM') }
  return (name) => {
    for (const listener of process.listeners(name)) if (!before[name].includes(listener)) listener(name)
  }
}

it.each([{}, { json: true }])(
  'what another host says of a cancel is sanitized in an attached terminal, with %j [S1.11]',
  async (flags) => {
    const detail = 'its host \u001b]0;owned\u0007\u001b[2J\u202e is away'
    const { env, seen } = await besideFleet((method, path) =>
      method === 'POST' && path.endsWith('/cancel')
        ? [409, refusal(409, 'not_possible_now', detail)]
        : undefined,
    )
    const stdout = new PassThrough()
    const stderr = new PassThrough()
    let said = ''
    for (const output of [stdout, stderr])
      output.setEncoding('utf8').on('data', (text: string) => (said += text))
    const send = signals()
    const attached = attach({ stdin: new PassThrough(), stdout, stderr, env, version }, runId, flags)
    await expect
      .poll(() => seen.filter(({ headers }) => headers.accept === 'text/event-stream'))
      .toHaveLength(1)
    send('SIGINT')
    send('SIGINT')
    await expect.poll(() => said).toContain('Not cancelled: its host \\e]0;owned\\x07\\e[2J\\u{202e} is away')
    for (const raw of ['\u001b]0', '\u001b[2J', '\u202e']) expect(said).not.toContain(raw)
    send('SIGTERM')
    await attached
  },
)

it('the end of standard input denies a question of a run elsewhere, again until the service has taken it [S1.03]', async () => {
  let refusals = 2
  const { env, seen } = await besideFleet((method, path, query) => {
    if (method === 'POST')
      return refusals-- > 0 ? [503, refusal(503, 'state_unavailable', 'not now')] : [200, { taken: true }]
    if (path === '/v1/approvals') return [200, { approvals: [question(runId)], hasMore: false }]
    const events = query.get('from') === '1' ? [asks] : []
    return path.endsWith('/events') ? [200, { events, next: 2, isLast: false }] : undefined
  })
  const stdout = new PassThrough()
  const carried = await followInFleet(
    { stdin: new PassThrough(), stdout, stderr: stdout, env, version },
    runId,
  )
  carried.denyRest()
  const answers = () => seen.flatMap(({ path, body }) => (path.endsWith('/ap-1') ? [JSON.parse(body)] : []))
  await expect.poll(answers).toHaveLength(3)
  expect(answers().at(-1)).toMatchObject({ decision: 'deny', by: 'the end of standard input', digest })
  await new Promise((resolve) => setTimeout(resolve, 1_500))
  expect(answers()).toHaveLength(3)
  carried.leave?.()
  expect(await carried.over).toEqual({ kind: 'left' })
})

it.each([
  ['apply', 'applies the changes', ['--all']],
  ['undo', 'restores the files', []],
])(
  'who interrupts caisson workspace %s of a run of a fleet learns that the service still %s, and waits no longer',
  async (verb, does, more) => {
    const { host, env, directory } = await runThatChanged({ 'a.txt': 'a\n' }, { 'a.txt': 'b\n' })
    await markFleet(host.runs.paths(changedRunId).journal, 'postgres://db.example.com/caisson')
    const answer: Answer = (method, path) => {
      if (method === 'POST') return 'silent'
      return path.endsWith('/changes') ? [200, { directory, changes: [] }] : undefined
    }
    const { seen } = await fleetAt(env.CAISSON_HOME, answer, changedRunId)
    const send = signals()
    const done = commandsIn(env)('workspace', verb, changedRunId, ...more)
    await expect.poll(() => seen.at(-1)?.path).toContain(`/changes/${verb}`)
    send('SIGINT')
    expect(await done).toEqual({
      ...{ code: 3, stdout: '' },
      stderr: `caisson: interrupted by SIGINT; the service still ${does}; see what it has done: caisson runs show ${changedRunId}\n`,
    })
  },
)

it.each([
  [['--detach', '--apply'], 2, '--apply is not possible with --fleet and --detach'],
  [['--web'], 1, '--fleet: no service runs with your state folder'],
])('caisson run --fleet %j carries nothing out on this host', async (flags, expected, message) => {
  const home = await temporaryFolder('run-fleet')
  const env = { HOME: home, CAISSON_HOME: home, PATH: '/nonexistent' }
  const workspace = await temporaryFolder('run-fleet-workspace')
  const { code, stderr } = await commandsIn(env)('run', '--fleet', '-w', workspace, ...flags, 'count')
  expect([code, stderr]).toEqual([expected, expect.stringContaining(message)])
  expect(await new Host({ env }).runs.ids()).toEqual([])
})

it('questions that the service does not list are mentioned on standard error [S1.11]', async () => {
  let hasMore = true
  const { caisson } = await besideFleet((_, path) =>
    path === '/v1/approvals' ? [200, { approvals: [question(runId), question(runId)], hasMore }] : undefined,
  )
  const line =
    'caisson: 2 questions are listed, and there are more; list those of one run: caisson approvals list RUN\n'
  for (const flags of [[], ['--json']]) {
    const { code, stdout, stderr } = await caisson('approvals', 'list', ...flags)
    expect({ code, stderr }).toEqual({ code: 0, stderr: line })
    expect(stdout.split('ap-1').length).toBeGreaterThan(2)
  }
  hasMore = false
  expect((await caisson('approvals', 'list')).stderr).toBe('')
})

it('a refusal that begins with the ID of the run says it once [S1.11]', async () => {
  let detail = `${runId} is not at work`
  const { caisson } = await besideFleet((method) =>
    method === 'POST' ? [409, refusal(409, 'not_possible_now', detail)] : undefined,
  )
  expect((await caisson('runs', 'steer', runId, 'hi')).stderr).toMatch(
    new RegExp(`^caisson: ${runId} is not at work; `),
  )
  detail = 'it is not at work'
  expect((await caisson('runs', 'pause', runId)).stderr).toMatch(
    new RegExp(`^caisson: ${runId}: it is not at work; `),
  )
})
