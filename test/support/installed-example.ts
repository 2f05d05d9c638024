/** An example with packages of its own, installed by its lock, over the sources of this checkout. */
import { execFile } from 'node:child_process'
import { cp, mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { promisify } from 'node:util'

const run = promisify(execFile)
const root = path.join(import.meta.dirname, '../..')
const { NODE_OPTIONS: _, ...inherited } = process.env

export class InstalledExample implements AsyncDisposable {
  readonly folder: string

  private constructor(folder: string) {
    this.folder = folder
  }

  /** @param name of the folder below `examples` */
  static async install(name: string): Promise<InstalledExample> {
    const folder = await mkdtemp(path.join(tmpdir(), `caisson-${name}-`))
    await cp(path.join(root, 'examples', name), folder, { recursive: true })
    const env = {
      ...inherited,
      NODE_USE_SYSTEM_CA: '1',
      PATH: `${path.dirname(process.execPath)}:${process.env.PATH}`,
    }
    await run('npm', ['ci', '--ignore-scripts', '--no-audit', '--no-fund'], { cwd: folder, env })
    // In the place of the installed package: the sources of this checkout.
    await symlink(root, path.join(folder, 'node_modules/caisson'))
    return new InstalledExample(folder)
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await rm(this.folder, { recursive: true, force: true })
  }

  /** @returns the problems that the compiler finds; empty: none */
  async compile(): Promise<string> {
    const { compilerOptions } = JSON.parse(await readFile(path.join(root, 'tsconfig.json'), 'utf8')) as Config
    const check = {
      extends: './tsconfig.json',
      compilerOptions: {
        customConditions: ['caisson-source'],
        allowImportingTsExtensions: true,
        typeRoots: [path.join(root, 'node_modules/@types')],
        lib: compilerOptions.lib,
      },
    }
    await writeFile(path.join(this.folder, 'check.json'), JSON.stringify(check))
    const compiler = path.join(root, 'node_modules/typescript/bin/tsc')
    const ran = run(process.execPath, [compiler, '--pretty', 'false', '-p', 'check.json'], {
      cwd: this.folder,
    })
    return await ran.then(
      () => '',
      ({ stdout }: { stdout: string }) => stdout,
    )
  }

  /** Runs a program of the example. @returns what it prints; rejects when it fails */
  async run(
    program: string,
    args: readonly string[],
    { env, input }: { readonly env: Readonly<Record<string, string>>; readonly input: string },
  ): Promise<string> {
    const ran = run(process.execPath, ['--conditions=caisson-source', program, ...args], {
      cwd: this.folder,
      env: { ...inherited, ...env },
      timeout: 300_000,
    })
    ran.child.stdin?.end(input)
    return (await ran).stdout
  }
}

interface Config {
  readonly compilerOptions: { readonly lib: readonly string[] }
}
