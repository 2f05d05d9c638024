import { readFile, writeFile } from 'node:fs/promises'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { describe, expect, it, onTestFinished } from 'vitest'
import { RunLimits } from '#specs/protocol/task.ts'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { Config } from '../../host/config/schema.ts'
import { ensureImage } from '../../host/image/image.ts'
import { readJournal } from '../../host/journal/journal.ts'
import { RunRecord } from '../../host/journal/run-record.ts'
import { newRunId } from '../../host/journal/run-store.ts'
import { directNetwork } from '../../host/net/network.ts'
import { offlineProvider } from '../../host/providers/providers.ts'
import { resolveEgress } from '../../host/resolve-run.ts'
import type { PlannedRun } from '../../host/runs/resolved-run.ts'
import { Run } from '../../host/runs/run.ts'
import { Secrets } from '../../host/secrets/secrets.ts'
import { prepareFolders } from '../../host/state/folders.ts'
import { findVms, finish, readFiles, type TestBench, testBench } from '../../host/test/support/runs.ts'
import { findQemu } from '../../host/test/support/vm-processes.ts'

async function untilToolRuns(run: Run): Promise<void> {
  for await (const item of run.watch()) {
    if (item.source === 'agent' && item.event.type === 'tool-start') return
  }
  throw new Error('the run ended before a tool began')
}

/** Until a program in the guest prints something. */
async function untilOutput(run: Run): Promise<void> {
  for await (const item of run.watch()) {
    if (item.source === 'delta' && item.delta.type === 'tool-output-delta') return
  }
  throw new Error('the run ended without output')
}

/** Longer than a heartbeat may take, and than half the range of an emulated 32-bit clock (21 s). */
const stillMs = 25_000

const noKey = () => Promise.resolve({ ok: false as const, error: 'there are no keys here' })

describe('a fault in the middle of a run', () => {
  it('of the VM is survived: one that stood still for longer than the heartbeat keeps its session and the guest’s clock, nothing lost or doubled [R.02]', async () => {
    const bench = await testBench({ 'a.txt': 'a\n' })
    const run = await bench.start(
      'Run the command `a=$(cut -d. -f1 /proc/uptime); for i in $(seq 1 12); do echo line-$i; sleep 1; done; echo passed-$(($(cut -d. -f1 /proc/uptime) - a)) > done.txt; cat done.txt`',
    )
    const finished = finish(run)
    await untilOutput(run)
    const qemu = await findQemu(bench.home)
    process.kill(qemu, 'SIGSTOP')
    await sleep(stillMs)
    process.kill(qemu, 'SIGCONT')
    const { events, state } = await finished
    expect(state.end).toMatchObject({ outcome: 'completed' })
    expect(events.filter(({ type }) => type === 'session-end')).toEqual([])
    expect(events.filter(({ type }) => type === 'session-start')).toHaveLength(1)
    const counts = (await readJournal(bench.host.runs.paths(run.id).journal, run.id)).flatMap((event) =>
      event.source === 'agent' ? [event.n] : [],
    )
    expect(counts).toEqual(counts.map((_, index) => index + 1))
    const output = events.flatMap((event) => (event.type === 'tool-end' ? [event.output] : [])).join('')
    for (let line = 1; line <= 12; line += 1) expect(output.split(`line-${line}\n`).length).toBe(2)
    // Twelve sleeps and the standstill: a clock of 32 bits would leave out 43 s.
    const passedS = Number(/passed-(\d+)/.exec(output)?.[1])
    expect(passedS).toBeGreaterThanOrEqual(12 + stillMs / 1_000 - 2)
    expect(state.changes?.entries).toBe(1)
  })

  it('of QEMU ends the run with what is known of it, and leaves nothing [V.01 V.06]', async () => {
    const bench = await testBench({ 'a.txt': 'a\n' })
    // Booted: a copy of a template has nothing to say on its console.
    const vm = { memoryBytes: 512 * 1024 ** 2, start: 'cold', recoveries: 0 } as const
    const run = await bench.start('Run the command `sleep 300`', { vm })
    const finished = finish(run)
    await untilToolRuns(run)
    process.kill(await findQemu(bench.home), 'SIGKILL')
    const { events, state } = await finished
    expect(state.end).toMatchObject({
      outcome: 'failed',
      reason: 'vm_lost',
      message: expect.stringContaining('SIGKILL'),
    })
    expect(events.filter(({ type }) => type === 'run-end')).toHaveLength(1)
    expect(await findVms(bench.home)).toEqual([])
    expect(await readFile(bench.host.runs.paths(run.id).console, 'utf8')).toContain('caisson: init ready')
  })

  it('of the agent ends the run, names how it ended, and keeps what was written before [S1.03 W.01]', async () => {
    const bench = await testBench({ 'a.txt': 'a\n' })
    const prompt = 'Run the command `echo kept > kept.txt; touch crash-now; sleep 60`'
    const run = await startWithAgent(bench, 'crashing-main.ts', { prompt })
    const { state, events } = await finish(run)
    expect(state.end).toMatchObject({
      outcome: 'failed',
      reason: 'agent_lost',
      message: expect.stringMatching(/SIGABRT|134/),
    })
    expect(events.filter(({ type }) => type === 'run-end')).toHaveLength(1)
    const paths = (await (await bench.host.changes(run.id)).review()).map((item) => item.path)
    expect(paths).toEqual(['crash-now', 'kept.txt'])
  })

  it('of the agent, killed in the middle of a command, is survived: another one repeats the command on the disk as it was [R.01]', async () => {
    const bench = await testBench({ 'a.txt': 'a\n' })
    let asked = 0
    const server = createServer((_request, response) => response.end(++asked === 1 ? 'die' : 'live'))
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
    onTestFinished(() => void server.close())
    const { port } = server.address() as AddressInfo
    // `--noproxy ''`: this machine's loopback is meant, not the guest's.
    const fetch = `curl -sS --noproxy '' http://127.0.0.1:${port}/ > fate`
    const run = await startWithAgent(bench, 'mortal-main.ts', {
      prompt: `Run the command \`echo one >> log.txt; ${fetch}; sleep 1\``,
      egress: resolveEgress(Config.parse({}), [
        { effect: 'allow', host: '127.0.0.1', schemes: ['http'], ports: [port] },
      ]),
      vm: {},
    })
    const { state, events } = await finish(run)
    expect(state.end).toMatchObject({ outcome: 'completed' })
    expect(events.filter(({ type }) => type === 'run-end')).toHaveLength(1)
    expect(events.filter(({ type }) => type === 'run-resume')).toMatchObject([
      {
        epoch: 2,
        message: expect.stringContaining('SIGKILL'),
        reached: [expect.stringContaining(`:${port}/`)],
      },
    ])
    await (await bench.host.changes(run.id)).apply('all')
    expect(await readFiles(bench.workspace)).toEqual({ 'a.txt': 'a\n', 'log.txt': 'one\n', fate: 'live' })
  })

  it('of the guest’s kernel, which panics, is survived and named with the last lines of the console [R.01]', async () => {
    const bench = await testBench({ 'a.txt': 'a\n' })
    let asked = 0
    const server = createServer((_request, response) => response.end(++asked === 1 ? 'panicnow' : 'sleep'))
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
    onTestFinished(() => void server.close())
    const { port } = server.address() as AddressInfo
    const fetch = `curl -sS --noproxy '' http://127.0.0.1:${port}/`
    const command = `echo one >> log.txt; name=$(${fetch}); cp /bin/sleep /tmp/$name; /tmp/$name 15`
    const run = await startWithAgent(
      bench,
      'mortal-main.ts',
      {
        prompt: `Run the command \`${command}\``,
        egress: resolveEgress(Config.parse({}), [
          { effect: 'allow', host: '127.0.0.1', schemes: ['http'], ports: [port] },
        ]),
        vm: { start: 'cold' },
      },
      panickingInitramfs,
    )
    const { state, events } = await finish(run)
    expect(state.end).toMatchObject({ outcome: 'completed' })
    const named = expect.stringMatching(
      /^the kernel of the VM panicked in the middle of the run \(sysrq triggered crash\)\nguest-reset\n[\s\S]*entry_SYSCALL_64/,
    )
    expect(events.filter(({ type }) => type === 'vm-end')).toMatchObject([
      { expected: false, message: named },
    ])
    expect(events.filter(({ type }) => type === 'run-resume')).toMatchObject([{ epoch: 2, message: named }])
    await (await bench.host.changes(run.id)).apply('all')
    expect(await readFiles(bench.workspace)).toEqual({ 'a.txt': 'a\n', 'log.txt': 'one\n' })
  }, 300_000)

  it('of an agent that carries out a plan that was not approved ends its session and the run, with its work to review [S0.07 S1.11 A.11]', async () => {
    const bench = await testBench({ 'a.txt': 'a\n' })
    const prompt = 'Run the command `echo early > early.txt; sleep 60`'
    const run = await startWithAgent(bench, 'lying-main.ts', { prompt, approvePlan: true })
    const { state, events } = await finish(run)
    expect(state.end).toMatchObject({
      outcome: 'failed',
      reason: 'protocol_violation',
      message: expect.stringMatching(/the guest sent the start of step ".*" of a plan that was not approved/),
    })
    const types = events.map(({ type }) => type)
    expect(types).toContain('plan-update')
    expect(types).not.toContain('step-start')
    expect(types).not.toContain('tool-start')
    expect(events).toContainEqual(expect.objectContaining({ type: 'session-end', reason: 'violation' }))
    expect(types.filter((type) => type === 'run-end')).toHaveLength(1)
    expect(types).toContain('changes-ready')
    expect(await findVms(bench.home)).toEqual([])
  })
})

/** Starts a run whose agent is another program, a file of `test/vm/agents`; nobody answers. */
async function startWithAgent(
  bench: TestBench,
  entry: string,
  told: Partial<PlannedRun>,
  makeInitramfs: (from: string) => Promise<string> = async (from) => from,
): Promise<Run> {
  const { folders } = bench.host
  await prepareFolders(folders)
  const top = path.join(import.meta.dirname, '../..')
  const watched = ['agent', 'runtime', 'specs'].map((room) => path.join(top, room))
  const agent = { entry: path.join(top, 'test/vm/agents', entry), watched }
  const built = await ensureImage({
    cacheDir: folders.cache,
    sources: { recipe: path.join(top, 'vm-image'), agent },
  })
  const image = { ...built, initramfs: await makeInitramfs(built.initramfs) }
  const runId = newRunId()
  const plan: PlannedRun = {
    runId,
    folders,
    prepareMachine: async () => ({ image }),
    config: Config.parse({}),
    network: directNetwork,
    egress: { rules: [], otherwise: 'deny' },
    secrets: new Secrets({}, noKey),
    resolveKey: noKey,
    provider: offlineProvider(false),
    prompt: '',
    mode: 'work',
    approvePlan: false,
    directory: bench.workspace,
    include: [],
    limits: RunLimits.parse({}),
    vm: { recoveries: 0 },
    keep: false,
    approvals: { mode: 'none', rules: [], interactive: false },
    ...told,
  }
  return new Run(plan, await RunRecord.open(await bench.host.runs.create(runId)))
}

/** The initramfs with a process that crashes the kernel once a process has the name `panicnow`. */
async function panickingInitramfs(from: string): Promise<string> {
  const script = await readFile(path.join(import.meta.dirname, '../../vm-image/initramfs/init'), 'utf8')
  const last = script.lastIndexOf('exec $b switch_root')
  const watch = `$b mkdir /p
$b mount -t proc p /p
$b mkfifo /f
(
  exec 8<>/f
  cd /p
  while :; do
    read -r -t 1 none <&8
    for file in [0-9]*/comm; do
      read -r name <$file && [ "$name" = panicnow ] && echo c >sysrq-trigger
    done
  done
) </dev/null 2>/dev/null &
`
  const whole = Buffer.concat([
    padded(await readFile(from)),
    cpioOf('init', script.slice(0, last) + watch + script.slice(last)),
  ])
  const file = path.join(await temporaryFolder('initramfs'), 'initramfs')
  await writeFile(file, whole)
  return file
}

/** One executable in the format `newc`, which the kernel unpacks over what is before it. */
function cpioOf(name: string, content: string): Buffer {
  const entry = (called: string, mode: number, body: Buffer) => {
    const fields = [1, mode, 0, 0, 1, 0, body.length, 0, 0, 0, 0, called.length + 1, 0]
    const head = Buffer.from(
      `070701${fields.map((field) => field.toString(16).padStart(8, '0')).join('')}${called}\0`,
    )
    return Buffer.concat([padded(head), padded(body)])
  }
  return Buffer.concat([entry(name, 0o100755, Buffer.from(content)), entry('TRAILER!!!', 0, Buffer.alloc(0))])
}

function padded(bytes: Buffer): Buffer {
  return Buffer.concat([bytes, Buffer.alloc((4 - (bytes.length % 4)) % 4)])
}
