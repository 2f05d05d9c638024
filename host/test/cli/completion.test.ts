import { existsSync } from 'node:fs'
import path from 'node:path'
import { pathToFileURL } from 'node:url'
import { execa } from 'execa'
import { describe, expect, it } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { commandHelp } from '../../cli/help.ts'
import { Host } from '../../host.ts'
import { beginRun } from '../support/begun-run.ts'

const commandNames = Object.keys(commandHelp).filter((name) => name !== 'completion')
const bin = path.join(import.meta.dirname, '../../cli/bin.ts')
const caisson = async (...argv: string[]): Promise<string> =>
  (await execa(process.execPath, ['--conditions=caisson-source', bin, ...argv])).stdout

/** What the shell would offer behind these words; the last is what was typed of the next one. */
async function offered(...words: string[]): Promise<string[]> {
  const lines = (await caisson('complete', '--', ...words)).split('\n')
  expect(lines.at(-1)).toMatch(/^:\d+$/)
  return lines.slice(0, -1).map((line) => line.split('\t')[0] ?? '')
}

/** The project's files that a command loads, relative to the project. */
async function loadedBy(...argv: string[]): Promise<string[]> {
  const hook = `import { registerHooks } from 'node:module'; import { writeSync } from 'node:fs'
registerHooks({ load(url, context, next) { writeSync(2, url + '\\n'); return next(url, context) } })`
  const args = ['--conditions=caisson-source', '--import', `data:text/javascript,${encodeURIComponent(hook)}`]
  const { stderr } = await execa(process.execPath, [...args, bin, ...argv])
  const root = pathToFileURL(path.join(import.meta.dirname, '../../..')).href
  return stderr
    .split('\n')
    .filter((url) => url.startsWith(`${root}/`) && !url.includes('/node_modules/'))
    .map((url) => url.slice(root.length + 1))
}

describe('what starts fast', () => {
  it.each([[['--help']], [['--version']], [['completion', 'bash']], [['complete', '--', 'ru']]])(
    '%j loads no command, and nothing of the library [H.01]',
    async (argv) => {
      const loaded = await loadedBy(...argv)
      expect(loaded).toContain('host/cli/main.ts')
      expect(
        loaded.filter(
          (file) =>
            !/^(host\/cli\/([^/]+|render\/(sanitize|fit))|host\/files\/package-version|specs\/errors)\.ts$/.test(
              file,
            ),
        ),
      ).toEqual([])
      expect(loaded).not.toContain('host/cli/io.ts')
    },
  )

  it.each([...commandNames, 'complete'])(
    'the help of %s and completion of its options load what the command accepts, and nothing of the library [H.01]',
    async (name) => {
      const words = name === 'complete' ? ['complete', '--', 'run', '--'] : [name, '--help']
      const loaded = await loadedBy(...words)
      expect(loaded.filter((file) => file.startsWith('host/cli/declarations/'))).toHaveLength(1)
      const light =
        /^(host\/cli\/([^/]+|declarations\/[^/]+|render\/(sanitize|fit))|host\/files\/package-version|specs\/errors)\.ts$/
      expect(loaded.filter((file) => !light.test(file))).toEqual([])
      expect(loaded).not.toContain('host/cli/io.ts')
    },
  )

  it('a command that runs loads its own file and the library [H.01]', async () => {
    const loaded = await loadedBy('config', 'path')
    expect(loaded).toEqual(expect.arrayContaining(['host/cli/commands/config.ts', 'host/host.ts']))
    expect(loaded).not.toContain('host/cli/commands/run.ts')
  })
})

describe('shell completion', () => {
  it('offers commands, subcommands, options and their values [H.01]', async () => {
    expect(await offered('ru')).toEqual(['run', 'runs'])
    expect(await offered('workspace', '')).toEqual(expect.arrayContaining(['diff', 'apply', 'undo']))
    expect(await offered('run', '--appr')).toEqual(['--approve', '--approve-plan'])
    expect(await offered('chat', '--e')).toEqual(['--effort', '--env-file'])
    expect(await offered('chat', '--effort', 'm')).toEqual(['medium'])
    expect(await offered('completion', '')).toEqual(expect.arrayContaining(['bash', 'zsh', 'fish']))
    expect(await offered('')).not.toContain('complete')
  })

  it('offers the IDs of runs where a command takes one, and loads what lists them only there [H.01]', async () => {
    const home = await temporaryFolder('completion-home')
    const runId = 'run-00000000000000000abc'
    const { record } = await beginRun(new Host({ env: { ...process.env, CAISSON_HOME: home } }), runId, home)
    await record[Symbol.asyncDispose]()
    for (const words of [
      ['runs', 'show', ''],
      ['workspace', 'diff', 'run-'],
      ['workspace', 'blame', 'run-'],
      ['run', '--continue', 'run-'],
    ]) {
      const argv = ['--conditions=caisson-source', bin, 'complete', '--', ...words]
      const { stdout } = await execa(process.execPath, argv, { env: { CAISSON_HOME: home } })
      expect(stdout).toContain(`${runId}\tp\n`)
    }
    expect(await loadedBy('complete', '--', 'runs', 'sh')).not.toContain('host/host.ts')
  })

  it.each(['bash', 'zsh', 'fish'])(
    'prints a script for %s that asks this command line [H.01]',
    async (shell) => {
      const script = await caisson('completion', shell)
      expect(script).toMatch(/caisson complete -- /)
      if (shell === 'bash') await execa('bash', ['-n'], { input: script })
    },
  )

  /** What Tab offers in a real bash, by its own rules of words. */
  async function offeredByBash(...words: string[]): Promise<string[]> {
    const program = `
      caisson() { ${[process.execPath, '--conditions=caisson-source', bin].map((word) => `'${word}'`).join(' ')} "$@"; }
      source <(caisson completion bash); source <(caisson completion bash)
      COMP_WORDS=(caisson "$@"); COMP_CWORD=$#
      _caisson; printf '%s\\n' "\${COMPREPLY[@]}"; complete -p caisson`
    const { stdout } = await execa('bash', ['--norc', '-c', program, 'bash', ...words])
    const lines = stdout.split('\n')
    expect(lines.pop()).toBe('complete -o default -F _caisson caisson')
    return lines.filter((line) => line !== '')
  }

  it('offers the same in a real bash, also after an equals sign, and files where it has nothing [H.01]', async () => {
    expect(await offeredByBash('ru')).toEqual(['run', 'runs'])
    expect(await offeredByBash('run', '--accel', '')).toEqual(['auto', 'kvm', 'hvf', 'tcg'])
    expect(await offeredByBash('run', '--accel', '=', 'k')).toEqual(['kvm'])
    expect(await offeredByBash('run', '--accel', '=')).toEqual(['auto', 'kvm', 'hvf', 'tcg'])
    expect(await offeredByBash('run', '-w', '')).toEqual([])
  })

  it('runs nothing of the line that is being typed in bash [H.01]', async () => {
    const file = path.join(await temporaryFolder('completion'), 'made')
    await offeredByBash('run', `"$(touch ${file})"`, `\`touch ${file}\``, '--acc')
    expect(existsSync(file)).toBe(false)
  })
})
