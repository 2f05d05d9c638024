/**
 * VS Code in a browser (code-server), for the tests of the extension: installed by its lock file into a cache of the
 * checkout, and one server for each test. Its packages run no scripts: the programs that they would build are not needed.
 */
import { type ChildProcess, execFile, spawn } from 'node:child_process'
import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { access, copyFile, mkdir, readFile, rename, rm, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { promisify } from 'node:util'
import { buildExtension, packExtension } from '../../scripts/vscode-extension.ts'

const run = promisify(execFile)
const here = path.join(import.meta.dirname, 'server')
const root = path.join(import.meta.dirname, '../..')
const { NODE_OPTIONS: _, ...inherited } = process.env
const installEnv = {
  ...inherited,
  NODE_USE_SYSTEM_CA: '1',
  PATH: `${path.dirname(process.execPath)}:${process.env.PATH}`,
}

/** @returns the program; installs it where this lock file was not installed before */
export async function installCodeServer(): Promise<string> {
  const lock = await readFile(path.join(here, 'package-lock.json'))
  const name = `code-server-${createHash('sha256').update(lock).digest('hex').slice(0, 16)}`
  const folder = path.join(root, 'node_modules/.cache', name)
  const program = path.join(folder, 'node_modules/code-server/out/node/entry.js')
  if (await exists(program)) return program
  // Whole or not at all: an install that was ended leaves nothing that looks complete.
  const draft = `${folder}.${process.pid}`
  await mkdir(draft, { recursive: true })
  try {
    for (const file of ['package.json', 'package-lock.json'])
      await copyFile(path.join(here, file), path.join(draft, file))
    await npm(draft, 'ci')
    // Its own packages have a lock file (npm-shrinkwrap.json) in the package.
    await npm(path.join(draft, 'node_modules/code-server/lib/vscode'), 'install', '--omit=dev')
    await rename(draft, folder).catch(async (error: unknown) => {
      if (!(await exists(program))) throw error
    })
  } finally {
    await rm(draft, { recursive: true, force: true })
  }
  return program
}

async function npm(cwd: string, ...words: string[]): Promise<void> {
  await run('npm', [...words, '--ignore-scripts', '--no-audit', '--no-fund'], {
    ...{ cwd, env: installEnv, maxBuffer: 16 * 1024 * 1024 },
  })
}

async function exists(file: string): Promise<boolean> {
  return await access(file).then(
    () => true,
    () => false,
  )
}

/** Builds the package of the extension, and has VS Code install it. @returns the folder of extensions */
export async function installExtension(program: string, folder: string): Promise<string> {
  const file = path.join(folder, 'caisson.vsix')
  const extensions = path.join(folder, 'extensions')
  await writeFile(file, packExtension(await buildExtension()))
  await run(process.execPath, [program, '--install-extension', file, ...places(folder, extensions)], {
    env: { ...installEnv, HOME: folder },
  })
  return extensions
}

export interface CodeServerOptions {
  readonly program: string
  readonly extensions: string
  /** Of this server alone: its settings and data. */
  readonly folder: string
  /** Beside `PATH`. */
  readonly env: Readonly<Record<string, string>>
  /** Of the person. */
  readonly settings: Readonly<Record<string, unknown>>
  /** Of the machine, which workspaces cannot set. */
  readonly machineSettings: Readonly<Record<string, unknown>>
}

export class CodeServer implements AsyncDisposable {
  /** `http://127.0.0.1:PORT` */
  readonly url: string
  readonly #child: ChildProcess

  private constructor(url: string, child: ChildProcess) {
    this.url = url
    this.#child = child
  }

  static async start(options: CodeServerOptions): Promise<CodeServer> {
    const { program, extensions, folder, env, settings, machineSettings } = options
    for (const [name, value] of [
      ['User', settings],
      ['Machine', machineSettings],
    ] as const) {
      await mkdir(path.join(folder, 'data', name), { recursive: true })
      await writeFile(path.join(folder, 'data', name, 'settings.json'), JSON.stringify(value))
    }
    const words = ['--auth', 'none', '--bind-addr', '127.0.0.1:0', ...places(folder, extensions)]
    const more = ['--disable-telemetry', '--disable-update-check', '--disable-getting-started-override']
    const child = spawn(process.execPath, [program, ...words, ...more], {
      env: { PATH: process.env.PATH, HOME: folder, LANG: 'C.UTF-8', ...env },
      stdio: ['ignore', 'pipe', 'pipe'],
      // It starts processes of its own, which end with the group.
      detached: true,
    })
    let said = ''
    const url = await new Promise<string>((resolve, reject) => {
      child.once('error', reject)
      child.once('exit', () => reject(new Error(`code-server ended: ${said}`)))
      const read = (text: string) => {
        said += text
        const found = /HTTP server listening on (http:\/\/127\.0\.0\.1:\d+)/.exec(said)?.[1]
        if (found !== undefined) resolve(found)
      }
      child.stdout.setEncoding('utf8').on('data', read)
      child.stderr.setEncoding('utf8').on('data', read)
    })
    return new CodeServer(url, child)
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const { pid, exitCode, signalCode } = this.#child
    if (pid === undefined || exitCode !== null || signalCode !== null) return
    const ended = once(this.#child, 'exit')
    process.kill(-pid, 'SIGKILL')
    await ended
  }
}

function places(folder: string, extensions: string): string[] {
  return [
    ...['--config', path.join(folder, 'config.yaml')],
    ...['--user-data-dir', path.join(folder, 'data')],
    ...['--extensions-dir', extensions],
  ]
}
