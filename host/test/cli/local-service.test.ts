// `caisson run` beside a service of this user: which one it uses, and what it sends to which socket. The service is a server
// of the test on the real socket; the run behind it has a real journal, queue and control socket.
import { existsSync } from 'node:fs'
import { chmod, link, readFile, rm, writeFile } from 'node:fs/promises'
import { createServer, type RequestListener } from 'node:http'
import path from 'node:path'
import { PassThrough, Readable } from 'node:stream'
import { describe, expect, it, onTestFinished } from 'vitest'
import { noUsage } from '#specs/protocol/task.ts'
import { RunRequest } from '#specs/service/start-resources.ts'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { startInService } from '../../cli/carried-run.ts'
import type { Io } from '../../cli/io.ts'
import { findLocalService, startRun } from '../../cli/local-service.ts'
import { askFor } from '../../cli/run-request.ts'
import { Host } from '../../host.ts'
import { Service } from '../../service/service.ts'
import { prepareFolders } from '../../state/folders.ts'
import { runAtWork } from '../support/run-at-work.ts'
import { commandsIn } from '../support/run-command.ts'
import { runId, runStart } from '../support/run-values.ts'
import { resource, type Seen, standIn, token, version } from './support/stand-in.ts'

const completed = {
  type: 'run-end',
  outcome: 'completed',
  reason: 'completed',
  message: '',
  summary: 'It is done.',
  usage: noUsage,
  durationMs: 1,
} as const

async function placeOf(name: string) {
  const home = await temporaryFolder(name)
  const env = { HOME: home, CAISSON_HOME: home, PATH: process.env.PATH }
  const { folders } = new Host({ env })
  await prepareFolders(folders)
  return { env, folders }
}

/** No request had the token. */
function secrets(seen: readonly Seen[]): unknown[] {
  return seen.flatMap(({ headers: { authorization } }) =>
    authorization === undefined ? [] : [authorization],
  )
}

const accept: RequestListener = (_, response) => response.writeHead(201).end(JSON.stringify(resource))

describe('the service of this user', () => {
  it('is used when it answers with this version; there may be none [H.02]', async () => {
    const home = await temporaryFolder('local-service')
    expect(await findLocalService(home, version)).toBeUndefined()
    const { socket, seen } = await standIn(home)
    expect(await findLocalService(home, version)).toEqual({ socket, token })
    expect(secrets(seen)).toEqual([])
  })

  it('is found where it listens with --socket, until it ends; an entry that others can write counts for nothing [H.02 V.09]', async () => {
    const home = await temporaryFolder('local-service')
    const host = new Host({ env: { HOME: home, CAISSON_HOME: home, PATH: process.env.PATH } })
    const socket = path.join(await temporaryFolder('elsewhere'), 'own.sock')
    const service = await Service.start({ host, version, port: 0, socket })
    onTestFinished(() => service.close())
    const found = { socket, token: (await readFile(service.tokenFile, 'utf8')).trim() }
    expect(await findLocalService(home, version)).toEqual(found)
    await chmod(path.dirname(socket), 0o755)
    expect(await findLocalService(home, version)).toEqual({
      problem: expect.stringContaining(`chmod 700 ${path.dirname(socket)}`),
    })
    await chmod(path.dirname(socket), 0o700)
    const folder = path.join(home, 'service')
    await chmod(folder, 0o777)
    expect(await findLocalService(home, version)).toBeUndefined()
    await chmod(folder, 0o700)
    await service.close()
    expect(await findLocalService(home, version)).toBeUndefined()
    await writeFile(path.join(folder, 'socket'), 'not/absolute\n')
    const next = await Service.start({ host, version, port: 0 })
    onTestFinished(() => next.close())
    expect(await findLocalService(home, version)).toMatchObject({ socket: next.socket })
    expect(existsSync(path.join(folder, 'socket'))).toBe(false)
  })

  it('gets no token when its version is another, its folder is open to others, or it is no service [H.02 V.09]', async () => {
    const home = await temporaryFolder('local-service')
    const { folder, seen, close } = await standIn(home, { says: { status: 'running', version: '9.9' } })
    const problem = async () => ((await findLocalService(home, version)) as { problem?: string }).problem
    expect(await problem()).toContain('is 9.9, and this is 0')
    await chmod(folder, 0o755)
    expect(await problem()).toContain(`chmod 700 ${folder}`)
    await chmod(folder, 0o700)
    await close()
    const other = await standIn(home, { says: 'hello' })
    expect(await problem()).toContain('answers as no service of Caisson does')
    await chmod(path.join(folder, 'token'), 0o644)
    expect(await problem()).toContain('is no token of the service')
    await rm(path.join(folder, 'token'))
    expect(await problem()).toContain('has no token')
    await other.close()
    await writeFile(path.join(folder, 'service.sock'), '')
    expect(await problem()).toContain('can be of another user')
    expect(secrets([...seen, ...other.seen])).toEqual([])
  })

  it('of a fleet gets no run of a command without --fleet, which carries it out itself and says so [H.02]', async () => {
    const home = await temporaryFolder('local-service')
    const says = { status: 'running', version, isOfFleet: true }
    const { seen } = await standIn(home, { says, started: accept })
    const notes: string[] = []
    const host = new Host({ env: { HOME: home, CAISSON_HOME: home, PATH: process.env.PATH } })
    const options = {
      prompt: 'Count',
      workspace: home,
      onNotes: (lines: readonly string[]) => notes.push(...lines),
    }
    const io = { version, stdout: new PassThrough() } as unknown as Io
    expect(await startInService(io, host, options, {})).toBe(undefined)
    expect(notes.join('\n')).toContain('is one of a fleet')
    expect(seen.map(({ path: asked }) => asked)).toEqual(['/healthz'])
  })

  it('that is in no fleet, or not there, gets no run with --fleet, and nobody else does [H.02]', async () => {
    const home = await temporaryFolder('local-service')
    const notes: string[] = []
    const host = new Host({ env: { HOME: home, CAISSON_HOME: home, PATH: process.env.PATH } })
    const onNotes = (lines: readonly string[]) => void notes.push(...lines)
    const options = { prompt: 'Count', workspace: home, onNotes }
    const io = { version, stdout: new PassThrough() } as unknown as Io
    const remedy = 'start a service of the fleet: caisson serve --fleet ADDRESS --fleet-files PLACE'
    const start = () => startInService(io, host, options, { fleet: true })
    await expect(start()).rejects.toMatchObject({
      message: `--fleet: no service runs with your state folder ${home}; ${remedy}`,
    })
    const { seen } = await standIn(home, { says: { status: 'running', version }, started: accept })
    await expect(start()).rejects.toMatchObject({ message: `--fleet: the service is in no fleet; ${remedy}` })
    expect(seen.map(({ path: asked }) => asked)).toEqual(['/healthz'])
    expect(notes).toEqual([])
  })

  it('of another version that is one of a fleet is named by commands that leave its runs out, once each; others are not [H.02]', async () => {
    const { env, folders } = await placeOf('local-service')
    const caisson = commandsIn(env)
    // What this version does not know of it changes nothing.
    const says = { status: 'running', version: '9.9\u001b[2J', isOfFleet: true, later: 1 }
    const other = await standIn(folders.home, { says })
    const line =
      `caisson: runs of its fleet are left out, because the service on ${other.socket} is 9.9\\e[2J, and this is 0; ` +
      'restart it with the version of this command, or use the caisson that started it\n'
    const none = 'no runs yet; start one: caisson run "TASK"\n'
    expect(await caisson('runs', 'list')).toEqual({ code: 0, stdout: none, stderr: line })
    expect(await caisson('runs', 'list', '--json')).toEqual({ code: 0, stdout: '', stderr: line })
    expect((await caisson('approvals', 'list')).stderr).toBe(line)
    for (const words of [
      ['runs', 'show', runId],
      ['runs', 'cancel', runId],
      ['runs', 'rm', runId],
      ['attach', runId],
    ]) {
      const { code, stderr } = await caisson(...words)
      expect([code, stderr.startsWith(line)]).toEqual([2, true])
      expect(stderr.split('left out')).toHaveLength(2)
      expect(stderr).toContain('no run has the ID')
    }
    expect(secrets(other.seen)).toEqual([])
    await other.close()
    await standIn(folders.home, { says: { status: 'running', version: '9.9' } })
    expect(await caisson('runs', 'list')).toEqual({ code: 0, stdout: none, stderr: '' })
  })

  it('of a fleet is asked for what a command does; what it refuses is said, with what to do, and sanitized [H.02]', async () => {
    const { env, folders } = await placeOf('local-service')
    const caisson = commandsIn(env)
    let refusal: Readonly<Record<string, unknown>> = {}
    const started: RequestListener = ({ method, url = '' }, response) => {
      if (method === 'GET' && url === `/v1/runs/${runId}`)
        return void response.end(JSON.stringify({ ...resource, host: null }))
      const problem = { type: 'about:blank', title: 't', status: 409, code: 'not_possible_now', ...refusal }
      response.writeHead(problem.status, { 'content-type': 'application/problem+json' })
      response.end(JSON.stringify(problem))
    }
    const { socket, seen, close } = await standIn(folders.home, {
      says: { status: 'running', version, isOfFleet: true },
      started,
    })
    const pause = async (problem: Readonly<Record<string, unknown>>) => {
      refusal = problem
      return await caisson('runs', 'pause', runId)
    }
    const detail = 'it is \u001b[2Jqueued'
    const remedy = `see it: caisson runs show ${runId}; by HTTP: GET /v1/runs/${runId}`
    expect(await pause({ detail, remedy })).toEqual({
      ...{ code: 1, stdout: '' },
      stderr: `caisson: ${runId}: it is \\e[2Jqueued; see it: caisson runs show ${runId}\n`,
    })
    expect((await pause({ status: 503, code: 'queue_closed', detail: 'not now' })).stderr).toBe(
      `caisson: ${runId}: the service on ${socket} refused: not now; look at the run with caisson runs show, and at the log of caisson serve\n`,
    )
    const [posted] = seen.filter(({ path: asked }) => asked === `/v1/runs/${runId}/pause`)
    expect(JSON.parse(posted?.body ?? '')).toEqual({ by: 'caisson runs pause' })
    expect(posted?.headers.authorization).toBe(`Bearer ${token}`)
    await close()
    expect((await caisson('runs', 'list')).stderr).toBe('')
  })

  it('that was killed, or does not answer, is waited for no longer [H.02]', async () => {
    const home = await temporaryFolder('local-service')
    const { folder, socket, close } = await standIn(home)
    // The name of a socket outlives a process that is killed.
    await link(socket, path.join(folder, 'left'))
    await close()
    await link(path.join(folder, 'left'), socket)
    expect(await findLocalService(home, version)).toEqual({
      problem: `the service on ${socket} has ended; start it again, or delete this socket`,
    })
    await rm(socket)
    const silent = createServer(() => undefined)
    await new Promise<void>((resolve) => silent.listen(socket, resolve))
    onTestFinished(() => void silent.close())
    const found = await findLocalService(home, version, 50)
    silent.closeAllConnections()
    expect(found).toEqual({ problem: `the service on ${socket} did not answer for 0.05 seconds` })
  })

  it('starts a run once or says why not; one that breaks off leaves that open [H.02]', async () => {
    const home = await temporaryFolder('local-service')
    const given = RunRequest.parse({ prompt: 'p' })
    const answer = async (started: RequestListener) => {
      const { socket, close, seen } = await standIn(home, { started })
      const result = await startRun({ socket, token }, given).catch((error: unknown) => error)
      await close()
      return { result, seen }
    }
    const taken = await answer(accept)
    expect(taken.result).toEqual({ runId })
    expect(secrets(taken.seen)).toEqual([`Bearer ${token}`])
    const refused = await answer((_, response) =>
      response.writeHead(401).end(
        JSON.stringify({
          type: '',
          title: '',
          status: 401,
          code: 'unauthorized',
          detail: 'no token',
          remedy: 'r',
        }),
      ),
    )
    expect(refused.result).toEqual({ problem: 'the service refused: no token; r' })
    const broken = await answer((request) => request.socket.destroy())
    expect(broken.result).toMatchObject({
      code: 'connection_lost',
      message: expect.stringContaining('may have started'),
    })
    const { socket, close } = await standIn(home)
    await close()
    expect(await startRun({ socket, token }, given)).toEqual({
      problem: `the service on ${socket} has ended; start it again, or delete this socket`,
    })
  })
})

describe('caisson run beside a service', () => {
  /** A run at work, and a service that says to have started it. */
  async function served(started: RequestListener = accept) {
    const run = await runAtWork()
    const home = run.env.CAISSON_HOME ?? ''
    const service = await standIn(home, { started })
    const workspace = await temporaryFolder('local-service-workspace')
    return {
      run,
      home,
      workspace,
      ...service,
      caisson: commandsIn(run.env, undefined, () => Readable.from([])),
    }
  }

  it('shows and answers the run of the service; the end of standard input denies what waits [H.02 S1.03]', async () => {
    const { run, workspace, seen, caisson } = await served()
    const output = path.join(workspace, 'answer.txt')
    const running = caisson('run', 'Count the files', '-w', workspace, '--json', '-o', output)
    await run.watched
    await run.ask({ question: 'Which?', kind: 'text' }, 'a1')
    await run.end(completed)
    const { code, stdout, stderr } = await running
    expect([code, stderr]).toEqual([0, expect.stringContaining('offline')])
    const events = stdout
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line))
    const types = events.map(({ event }) => event.type)
    expect(types).toEqual(['approval-request', 'approval-decision', 'run-end'])
    expect(events[1]?.event).toMatchObject({ decision: 'deny', name: 'the end of standard input' })
    const [, post] = seen
    expect(post?.headers.authorization).toBe(`Bearer ${token}`)
    expect(JSON.parse(post?.body ?? '')).toMatchObject({
      ...{ prompt: 'Count the files', workspace },
      expectedModel: { server: null },
      approvals: { mode: 'ask', interactive: true },
    })
  })

  it('shows the notes of the run sanitized [H.02]', async () => {
    const { run, workspace, caisson } = await served()
    await run.record.host({ ...runStart, notes: ['effort has no effect\u001b[2J here'] })
    const running = caisson('run', 'x', '-w', workspace, '--json')
    await run.watched
    await run.end(completed)
    expect((await running).stderr).toContain('effort has no effect\\e[2J here\n')
  })

  it('says in one line why it carries the run out itself, and with --here asks no service [H.02]', async () => {
    const refuse: RequestListener = (_, response) => response.writeHead(503).end('no')
    const { workspace, seen, home, caisson } = await served(refuse)
    // What comes after the line fails here, before there is a run: the options cannot be used by anybody.
    const run = (...more: string[]) => caisson('run', 'x', '-w', workspace, '--approve', 'none', ...more)
    const bad = ['--tool', 'no_such_tool']
    expect((await run(...bad)).stdout).toContain(
      'the service refused: it answered 503. This process carries out',
    )
    const told = await run('-c', 'limits.maxTokens=5', ...bad)
    expect(told.stdout.match(/This process carries out the run/g)).toHaveLength(1)
    expect(told.stdout).toContain('--config is not possible in the service')
    const quiet = await run('--quiet', '--add-dir', home, ...bad)
    expect([quiet.stdout, quiet.stderr]).toEqual(['', expect.stringContaining('--add-dir is not possible')])
    const before = seen.length
    const here = await run('--here', ...bad)
    expect([seen.length, here.stdout.includes('This process')]).toEqual([before, false])
  })

  it('with --detach leaves the run to the service [H.02 R.10]', async () => {
    const { workspace, seen, caisson } = await served()
    const { code, stdout } = await caisson('run', 'x', '-w', workspace, '--detach')
    expect([code, stdout]).toEqual([0, expect.stringContaining(`${runId} runs in the background`)])
    expect(JSON.parse(seen.at(-1)?.body ?? '')).toMatchObject({ approvals: { interactive: true } })
  })

  it('shows a run that ended at once from its journal [H.02]', async () => {
    const { run, workspace, caisson } = await served()
    await run.end({ ...completed, outcome: 'failed', reason: 'environment', message: 'no QEMU' })
    const { code, stdout } = await caisson('run', 'x', '-w', workspace)
    expect([code, stdout]).toEqual([4, expect.stringContaining('no QEMU')])
  })
})

describe('a request to the service', () => {
  it('has the options of the run, or names the one that the service cannot have [H.02]', async () => {
    const home = await temporaryFolder('local-service')
    const host = new Host({ env: { CAISSON_HOME: home, XDG_CONFIG_HOME: home } })
    const options = {
      prompt: 'p',
      workspace: home,
      metadata: { ticket: 'T-1' },
      files: { include: ['*.env'], acceptIgnoreRules: true },
      plan: { only: true, approve: true },
      limits: { maxTokens: 10 },
      vm: { memoryBytes: 2 ** 29, keep: true, accelerator: 'auto', confine: 'auto', start: 'auto' },
    } as const
    const { vm: _, ...same } = options
    expect(await askFor(host, options, {})).toMatchObject({
      request: { ...same, vm: { memoryBytes: 2 ** 29, keep: true } },
    })
    const reasonOf = async (more: object, settings = {}) =>
      ((await askFor(host, { ...options, ...more }, settings)) as { reason?: string }).reason
    const own = [
      ['--config', {}, { config: ['a=b'] }],
      ['--env-file', {}, { envFile: '.env' }],
      ['--mcp', { extensions: { mcpServers: {} } }],
      ['--replay', { replay: 'last' }],
      ['--add-dir', { folders: [{ path: home }] }],
      ['--no-template', { vm: { start: 'cold' } }],
      ['--accel', { vm: { accelerator: 'tcg' } }],
      ['--qemu-sandbox', { vm: { confine: 'require' } }],
    ] as const
    for (const [name, more, settings = {}] of own)
      expect(await reasonOf(more, settings)).toBe(`${name} is not possible in the service`)
    expect(await reasonOf({ prompt: 'p'.repeat(2 ** 20 + 1) })).toMatch(/^the service cannot take prompt: /)
    const plan = { goal: 'g', steps: [{ id: 'a', title: 'A', instructions: 'Do a' }] }
    await writeFile(path.join(home, 'plan.json'), JSON.stringify(plan))
    expect(
      await askFor(host, { ...options, prompt: '', plan: { from: path.join(home, 'plan.json') } }, {}),
    ).toMatchObject({
      request: { prompt: '', plan: { from: { goal: 'g' } } },
    })
  })
})
