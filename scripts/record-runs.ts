// Records the runs of test/recorded-runs in real VMs and writes their exports. Arguments name some of them; default: all.
import { createWriteStream } from 'node:fs'
import { mkdir, mkdtemp, rm, stat, utimes, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { Host } from '../host/index.ts'
import { startModelServer } from '../specs/testing/model-server.ts'
import { fixtureOf, type RecordedTask, recordedTasks } from '../test/recorded-runs/tasks.ts'

/** In the journal: the same path on each machine. */
const workspace = '/tmp/caisson-recorded-run'
const modified = new Date('2026-01-01T00:00:00Z')
const maxBytes = 300_000

const names = process.argv.slice(2)
const unknown = names.filter((name) => recordedTasks.every((task) => task.name !== name))
if (unknown.length > 0) {
  console.error(
    `no recorded run ${unknown.join(', ')}; known: ${recordedTasks.map(({ name }) => name).join(', ')}`,
  )
  process.exit(64)
}
for (const task of recordedTasks) if (names.length === 0 || names.includes(task.name)) await record(task)

async function record(task: RecordedTask): Promise<void> {
  await using cleanup = new AsyncDisposableStack()
  const home = await mkdtemp(path.join(tmpdir(), 'caisson-record-'))
  cleanup.defer(async () => await rm(home, { recursive: true, force: true }))
  // Fails where it exists: another recording is at work.
  await mkdir(workspace, { mode: 0o755 })
  cleanup.defer(async () => await rm(workspace, { recursive: true, force: true }))
  await writeWorkspace(task.files)
  await using server = await startModelServer(task.script())
  await using host = new Host({
    env: {
      ...process.env,
      CAISSON_HOME: home,
      XDG_CONFIG_HOME: path.join(home, 'config'),
      CAISSON_LLM_URL: server.baseUrl,
      CAISSON_LLM_KEY: 'sk-some-key-of-the-recording',
      CAISSON_MODEL: 'scripted',
    },
  })
  const run = await host.run({
    prompt: task.prompt,
    workspace,
    vm: { memoryBytes: 512 * 1024 ** 2 },
    approvals: { interactive: false },
    ...task.options,
  })
  const { outcome, message } = await run.result()
  if (outcome !== 'completed') throw new Error(`${task.name} ${outcome}: ${message}`)
  await exportWithoutLogs(host, run.id, fixtureOf(task))
  const { size } = await stat(fixtureOf(task))
  if (size > maxBytes) throw new Error(`${fixtureOf(task)} has ${size} bytes, expected at most ${maxBytes}`)
  console.log(`${task.name}: ${size} bytes`)
}

async function writeWorkspace(files: RecordedTask['files']): Promise<void> {
  for (const [name, content] of Object.entries(files)) {
    const file = path.join(workspace, name)
    await mkdir(path.dirname(file), { recursive: true, mode: 0o755 })
    await writeFile(file, content, { mode: 0o644 })
    await utimes(file, modified, modified)
    await utimes(path.dirname(file), modified, modified)
  }
}

/** A replay needs no log, and logs describe the machine. */
async function exportWithoutLogs(host: Host, runId: string, file: string): Promise<void> {
  const { console: consoleLog, agentLog } = host.runs.paths(runId)
  for (const log of [consoleLog, agentLog]) await rm(log, { force: true })
  await host.exportRun(runId, createWriteStream(file))
}
