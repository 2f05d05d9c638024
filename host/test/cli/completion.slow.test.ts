// Completion in a real zsh and a real fish, which scripts/test --all installs; bash is in completion.test.ts.
import { spawn } from 'node:child_process'
import { existsSync } from 'node:fs'
import { chmod, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { execa } from 'execa'
import { describe, expect, it, onTestFinished } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { Host } from '../../host.ts'
import { beginRun } from '../support/begun-run.ts'

const bin = path.join(import.meta.dirname, '../../cli/bin.ts')
const runId = 'run-00000000000000000abc'

/** A folder with the command `caisson`, and a state folder with one run. */
async function place() {
  const folder = await temporaryFolder('completion')
  const program = path.join(folder, 'caisson')
  await writeFile(
    program,
    `#!/bin/sh\nexec '${process.execPath}' --conditions=caisson-source '${bin}' "$@"\n`,
  )
  await chmod(program, 0o755)
  const home = await temporaryFolder('completion-home')
  const env = { HOME: folder, PATH: `${folder}:${process.env.PATH}`, TERM: 'xterm', CAISSON_HOME: home }
  const { record } = await beginRun(new Host({ env }), runId, folder)
  await record[Symbol.asyncDispose]()
  return { folder, env }
}

/** What a line becomes by Tab in zsh; Ctrl-X shows it. */
async function openZsh({ env, folder }: Awaited<ReturnType<typeof place>>) {
  const child = spawn('script', ['-qfec', 'stty cols 200; exec zsh -f -i', '/dev/null'], { env, cwd: folder })
  onTestFinished(() => void child.kill('SIGKILL'))
  let output = ''
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    output += text
  })
  const sees = async (wanted: RegExp): Promise<RegExpExecArray> => {
    for (;;) {
      const found = wanted.exec(output)
      if (found !== null) return found
      if (child.exitCode !== null) throw new Error(`zsh ended before ${wanted}:\n${output}`)
      await sleep(20)
    }
  }
  const setup = [
    'autoload -U compinit; compinit -u -D',
    'source <(caisson completion zsh)',
    // zsh’s own Tab runs a command in the word before it completes.
    `bindkey '^I' complete-word`,
    `show() { print -r -- "<""<$BUFFER>"">"; BUFFER=; }; zle -N show; bindkey '^X' show`,
    'print RE"ADY"',
  ]
  child.stdin.write(`${setup.join('; ')}\n`)
  await sees(/READY/)
  return async (line: string): Promise<string> => {
    output = ''
    child.stdin.write(`${line}\t\u0018`)
    return (await sees(/<<([^\n\r]*)>>/))[1] ?? ''
  }
}

describe('completion in zsh', () => {
  it('completes a command, an option, its value and the ID of a run, and runs nothing of the line [H.01]', async () => {
    const at = await place()
    const complete = await openZsh(at)
    expect(await complete('caisson vm bo')).toBe('caisson vm boot ')
    expect(await complete('caisson run "a b" --approve-p')).toBe('caisson run "a b" --approve-plan ')
    expect(await complete('caisson run --accel k')).toBe('caisson run --accel kvm ')
    expect(await complete('caisson run --accel=k')).toBe('caisson run --accel=kvm ')
    expect(await complete('caisson runs show run-0')).toBe(`caisson runs show ${runId} `)
    expect(await complete('caisson run --continue run-0')).toBe(`caisson run --continue ${runId} `)
    expect(await complete('caisson run -w caiss')).toBe('caisson run -w caisson ')
    await complete('caisson run $(>made-before) "`>made-quoted`" --acc')
    await complete('caisson run --x$(>made-within)=')
    for (const name of ['before', 'quoted', 'within'])
      expect([name, existsSync(path.join(at.folder, `made-${name}`))]).toEqual([name, false])
  }, 120_000)
})

describe('completion in fish', () => {
  it('offers commands, options, their values and the IDs of runs, and runs nothing of the line [H.01]', async () => {
    const { env, folder } = await place()
    const offered = async (line: string): Promise<string[]> => {
      const program = 'caisson completion fish | source; complete -C $argv[1]'
      const { stdout } = await execa('fish', ['--no-config', '-c', program, line], { env, cwd: folder })
      return stdout.split('\n').flatMap((item) => (item === '' ? [] : [item.split('\t')[0] ?? '']))
    }
    expect(await offered('caisson ru')).toEqual(['run', 'runs'])
    expect(await offered('caisson run --approve-p')).toEqual(['--approve-plan'])
    expect(await offered('caisson run --accel=k')).toEqual(['--accel=kvm'])
    expect(await offered('caisson runs show ')).toEqual(expect.arrayContaining(['last', runId]))
    await offered('caisson run (touch made-before) "$(touch made-quoted)" --x(touch made-within)=')
    for (const name of ['before', 'quoted', 'within'])
      expect([name, existsSync(path.join(folder, `made-${name}`))]).toEqual([name, false])
  }, 120_000)
})
