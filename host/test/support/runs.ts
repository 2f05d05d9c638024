/** Whole runs for tests: a host with state folders of the test's own, a workspace, and what a run left behind. */
import { mkdir, readdir, readFile, writeFile } from 'node:fs/promises'
import path from 'node:path'
import type { AgentEvent, HostEvent } from '#specs/protocol/event.ts'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { Host, type RunOptions } from '../../host.ts'
import type { HostOptions } from '../../host-options.ts'
import type { FeedItem } from '../../journal/run-feed.ts'
import type { Run } from '../../runs/run.ts'

export interface TestBench {
  readonly host: Host
  readonly home: string
  /** The workspace's real path. */
  readonly workspace: string
  /** Starts a run on the workspace; nobody answers approvals unless `interactive` says so. */
  start(prompt: string, options?: Partial<RunOptions>): Promise<Run>
  /** Starts a run and waits for its end. */
  run(prompt: string, options?: Partial<RunOptions>): Promise<FinishedRun>
}

export interface FinishedRun {
  readonly run: Run
  readonly events: (AgentEvent | HostEvent)[]
  readonly items: FeedItem[]
  readonly state: Run['state']
}

/** Call it from within a test. @param files content by path */
export async function testBench(
  files: Readonly<Record<string, string>>,
  env: Record<string, string> = {},
  config?: HostOptions['config'],
): Promise<TestBench> {
  const home = await temporaryFolder('home')
  const workspace = await temporaryFolder('workspace')
  await writeFiles(workspace, files)
  const own = { CAISSON_HOME: home, XDG_CONFIG_HOME: `${home}/config` }
  const host = new Host({ env: { ...process.env, ...own, ...env }, ...(config && { config }) })
  const start = (prompt: string, options: Partial<RunOptions> = {}) =>
    host.run({
      prompt,
      workspace,
      ...options,
      approvals: { interactive: false, ...options.approvals },
      vm: { memoryBytes: 512 * 1024 ** 2, ...options.vm },
    })
  return {
    host,
    home,
    workspace,
    start,
    run: async (prompt, options) => await finish(await start(prompt, options)),
  }
}

/** Everything a run shows until its end. */
export async function finish(run: Run): Promise<FinishedRun> {
  const items: FeedItem[] = []
  for await (const item of run.watch()) items.push(item)
  const state = await run.ended
  return { run, items, events: items.flatMap((item) => (item.source === 'delta' ? [] : [item.event])), state }
}

export async function writeFiles(folder: string, files: Readonly<Record<string, string>>): Promise<void> {
  for (const [name, content] of Object.entries(files)) {
    await mkdir(path.dirname(path.join(folder, name)), { recursive: true })
    await writeFile(path.join(folder, name), content)
  }
}

/** Content of every file below `folder`, by path. */
export async function readFiles(folder: string): Promise<Record<string, string>> {
  const found: Record<string, string> = {}
  for (const entry of await readdir(folder, { recursive: true, withFileTypes: true })) {
    const full = path.join(entry.parentPath, entry.name)
    if (entry.isFile()) found[path.relative(folder, full)] = await readFile(full, 'utf8')
  }
  return found
}

/** Ids of VMs with a folder in this state folder. */
export async function findVms(home: string): Promise<string[]> {
  return await readdir(path.join(home, 'vms')).catch(() => [])
}
