// The command line as a person or a program meets it: a child process, on pipes or in a pseudo-terminal of its own.

import { type ChildProcess, spawn } from 'node:child_process'
import { readdir, readFile } from 'node:fs/promises'
import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { onTestFinished } from 'vitest'
import { JournalEvent } from '#specs/protocol/event.ts'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { cliProgram } from './cli-program.ts'
import { writeFiles } from './runs.ts'

// As the file itself starts Node: without `--` Node takes options such as --env-file for its own.
const nodeArguments = ['--conditions=caisson-source', '--', cliProgram]

export interface CliEnd {
  readonly code: number | null
  readonly signal: NodeJS.Signals | null
  readonly stdout: string
  readonly stderr: string
}

export interface CliProcess {
  readonly child: ChildProcess
  /** What it has written to standard output, or to the terminal, so far. */
  output(): string
  /** What it has written to standard error so far. */
  errors(): string
  /** Waits for text in what it writes after the last match, and until it listens. @throws when it ends before */
  sees(text: string | RegExp): Promise<void>
  /** Writes to standard input, or presses keys. */
  type(text: string): void
  readonly ended: Promise<CliEnd>
}

export interface Place {
  readonly home: string
  readonly workspace: string
  readonly env: Record<string, string>
  /** Starts `caisson` on pipes. */
  start(...argv: string[]): CliProcess
  /** Starts `caisson` in a pseudo-terminal. */
  startInTerminal(...argv: string[]): CliProcess
  /** The same with a terminal that says it has no columns, as a container's does. */
  startInSizelessTerminal(...argv: string[]): CliProcess
  /** Runs `caisson` on pipes with nothing on standard input. */
  run(...argv: string[]): Promise<CliEnd>
  /** What is left of VMs, locks and workspace disks. */
  leftovers(): Promise<string[]>
  /** The journal of the newest run. */
  journal(): Promise<JournalEvent[]>
}

/** A workspace, the current directory of every command, and state folders of the test's own; the offline model answers. */
export async function cliPlace(
  files: Readonly<Record<string, string>>,
  env: Record<string, string> = {},
): Promise<Place> {
  const home = await temporaryFolder('cli-home')
  const workspace = await temporaryFolder('cli-workspace')
  await writeFiles(workspace, files)
  const { HOME = '', PATH = '', CAISSON_CACHE } = process.env
  const cache = CAISSON_CACHE === undefined ? {} : { CAISSON_CACHE }
  const own = { CAISSON_HOME: home, XDG_CONFIG_HOME: home }
  const full = { HOME, PATH, TERM: 'xterm', LANG: 'C.UTF-8', ...own, ...cache, ...env }
  const start = (argv: string[]) =>
    follow(spawn(process.execPath, [...nodeArguments, ...argv], { env: full, cwd: workspace }))
  return {
    home,
    workspace,
    env: full,
    start: (...argv) => start(argv),
    startInTerminal: (...argv) => follow(spawnInTerminal(argv, full, workspace, 'cols 100 rows 40')),
    startInSizelessTerminal: (...argv) => follow(spawnInTerminal(argv, full, workspace, 'cols 0 rows 0')),
    run: async (...argv) => {
      const started = start(argv)
      started.child.stdin?.end()
      return await started.ended
    },
    leftovers: async () => {
      const [vms, locks, runs] = await Promise.all(
        ['vms', 'locks', 'runs'].map((name) => readdir(path.join(home, name), { recursive: true })),
      )
      const ofUnfinished = /(?:\.erofs|run\.json|workspace-files\.json|scratch)$/
      const disks = (runs ?? []).filter((name) => ofUnfinished.test(name) && !/(^|\/)moments\//.test(name))
      return [...(vms ?? []), ...(locks ?? []), ...disks]
    },
    journal: async () => {
      const runs = path.join(home, 'runs')
      const journals = await Promise.all(
        (await readdir(runs)).map((name) => readFile(path.join(runs, name, 'journal.jsonl'), 'utf8')),
      )
      const parsed = journals.map((text) =>
        text
          .trimEnd()
          .split('\n')
          .map((line) => JournalEvent.parse(JSON.parse(line))),
      )
      return parsed.sort((a, b) => (b[0]?.at ?? 0) - (a[0]?.at ?? 0))[0] ?? []
    },
  }
}

/** Arguments of every test run: little memory, and the workspace. */
export function runArguments(place: Place, task: string, ...more: string[]): string[] {
  return ['run', task, '-w', place.workspace, '--ram', '512M', ...more]
}

/** `script` of util-linux gives a terminal and passes keys, output and exit code on. */
function spawnInTerminal(
  argv: readonly string[],
  env: Record<string, string>,
  cwd: string,
  size: string,
): ChildProcess {
  const words = [process.execPath, ...nodeArguments, ...argv].map(
    (word) => `'${word.replaceAll("'", `'\\''`)}'`,
  )
  return spawn('script', ['-qfec', `stty ${size}; exec ${words.join(' ')}`, '/dev/null'], {
    env: { ...env, SHELL: '/bin/sh' },
    cwd,
  })
}

function follow(child: ChildProcess): CliProcess {
  const text = { stdout: '', stderr: '' }
  let seen = 0
  for (const name of ['stdout', 'stderr'] as const) {
    child[name]?.setEncoding('utf8').on('data', (chunk: string) => {
      text[name] += chunk
    })
  }
  child.stdin?.on('error', () => undefined)
  const ended = new Promise<CliEnd>((resolve) =>
    child.on('close', (code, signal) => resolve({ code, signal, ...text })),
  )
  onTestFinished(() => void child.kill('SIGKILL'))
  return {
    child,
    output: () => text.stdout,
    errors: () => text.stderr,
    sees: async (wanted) => {
      for (;;) {
        const rest = text.stdout.slice(seen)
        const at = typeof wanted === 'string' ? rest.indexOf(wanted) : rest.search(wanted)
        if (at >= 0) break
        if (child.exitCode !== null)
          throw new Error(`it ended before ${wanted}:\n${text.stdout}\n${text.stderr}`)
        await sleep(20)
      }
      seen = text.stdout.length
      // A prompt is drawn before it listens.
      await sleep(200)
    },
    type: (keys) => void child.stdin?.write(keys),
    ended,
  }
}
