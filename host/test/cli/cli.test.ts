import { mkdir, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { PassThrough } from 'node:stream'
import { text } from 'node:stream/consumers'
import { describe, expect, it } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { settleContinue } from '../../cli/declarations/runs.ts'
import { runCli } from '../../cli/main.ts'
import { withFlags } from '../../cli/options.ts'

async function cli(argv: string[], env: Record<string, string> = {}) {
  const home = await temporaryFolder('cli')
  const [stdout, stderr] = [new PassThrough(), new PassThrough()]
  const io = {
    stdin: new PassThrough(),
    stdout,
    stderr,
    env: { HOME: home, PATH: process.env.PATH ?? '', ...env },
    version: '9.9.9',
  }
  const code = await runCli(argv, io)
  stdout.end()
  stderr.end()
  return { code, home, stdout: await text(stdout), stderr: await text(stderr) }
}

/** The names under `Commands:` of a help text, but for `help` itself. */
function subcommandsOf(help: string): string[] {
  const list = help.split('\nCommands:\n')[1]?.split('\n\n')[0] ?? ''
  return [...list.matchAll(/^ {2}(\S+)/gm)].flatMap(([, name = '']) => (name === 'help' ? [] : [name]))
}

describe('the command line', () => {
  it('explains every command with --help and exits with 0 [H.01 S0.10]', async () => {
    const explained: string[] = []
    const explain = async (command: readonly string[]): Promise<void> => {
      const { code, stdout, stderr } = await cli([...command, '--help'])
      const name = command.join(' ')
      expect([name, code, stderr]).toEqual([name, 0, ''])
      expect(stdout).toContain(`Usage: ${['caisson', ...command].join(' ')} `)
      explained.push(name)
      for (const below of subcommandsOf(stdout)) await explain([...command, below])
    }
    await explain([])
    expect(explained).toEqual(expect.arrayContaining(['run', 'vm shell', 'workspace undo', 'mcp list']))
    expect(explained.length).toBeGreaterThan(50)
    expect(await cli(['--version'])).toMatchObject({ code: 0, stdout: '9.9.9\n' })
  })

  it.each([
    ['fly\u001b[2J\u202e'],
    ['run', '--fly\u001b[2J'],
    ['runs', 'fly\u001b]0;x\u0007'],
    ['completion', '\u001bc'],
  ])('quotes a command line without its control characters: %#', async (...words) => {
    const { code, stderr } = await cli(words)
    expect(code).toBe(2)
    expect(stderr).toContain('\\e')
    expect(stderr).not.toMatch(/[^\n\P{C}]/u)
  })

  it.each([[[]], [['vm']], [['runs']]])(
    'prints the help of a command that needs another word, and exits with 2: %j',
    async (words) => {
      const { code, stdout, stderr } = await cli(words)
      expect(code).toBe(2)
      expect(stdout + stderr).toContain(`Usage: ${['caisson', ...words].join(' ')} `)
    },
  )

  it('exits with 2 and says what is wrong with a command line', async () => {
    expect(await cli(['fly'])).toMatchObject({
      code: 2,
      stderr: expect.stringContaining("unknown command 'fly'"),
    })
    expect(await cli(['run'])).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('no task given'),
    })
    expect(await cli(['run', '  '])).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('no task given'),
    })
    expect(await cli(['run', 'x', '--ram', 'much'])).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('for example 512M'),
    })
    expect(await cli(['run', 'x', '--max-time', '5 days'])).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('90s, 10m or 2h'),
    })
    expect(await cli(['run', 'x', '--max-cost', '0'])).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('US dollars, for example 5 or 0.50'),
    })
    expect(await cli(['run', 'x', '--cpus', '0'])).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('at least 1'),
    })
    expect(await cli(['run', 'x', '--accel', 'warp'])).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('kvm, hvf, tcg'),
    })
    expect(await cli(['run', 'x', '--approve', '/nowhere/rules'])).toMatchObject({
      code: 2,
      stderr: expect.stringContaining(
        'cannot read the approval rules in /nowhere/rules: it does not exist. Expected ask, all, none or a file',
      ),
    })
    expect(await cli(['run', 'x', '--max-agents', '-1'])).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('--max-agents'),
    })
    expect(await cli(['run', '--plan-from', 'nothing'])).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('no plan "nothing": no run has this ID, and the file cannot be read'),
    })
    expect(await cli(['run', 'x', '--plan-only', '--plan-from', './plan.json'])).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('leave out plan.only (--plan-only)'),
    })
    for (const what of ['steer nothing hello', 'pause nothing', 'resume nothing', 'cancel nothing']) {
      expect(await cli(['runs', ...what.split(' ')])).toMatchObject({
        code: 2,
        stderr: expect.stringContaining('no run has the ID "nothing"'),
      })
    }
    expect(await cli(['runs', 'show', 'nothing'])).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('no run has the ID "nothing"'),
    })
    expect(await cli(['workspace', 'apply', 'last'])).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('name the paths'),
    })
  })

  it('takes the task behind --continue as the task, and a run as the run [H.01]', async () => {
    const workspace = await temporaryFolder('continue')
    expect(await cli(['run', '-w', workspace, '--continue', 'Count the lines of a.txt'])).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('no run has worked on'),
    })
    const settled = (...argv: string[]) => settleContinue(['run', ...argv]).slice(1)
    expect(settled('--continue', 'Now in German')).toEqual(['--continue=last', 'Now in German'])
    expect(settled('--continue', '--keep-vm', 'x')).toEqual(['--continue', '--keep-vm', 'x'])
    expect(settled('x', '--continue')).toEqual(['x', '--continue'])
    for (const run of ['last', 'run-2d6cd77c', 'a88487f8'])
      expect(settled('--continue', run, 'x')).toEqual(['--continue', run, 'x'])
    expect(settled('--', '--continue', 'x')).toEqual(['--', '--continue', 'x'])
  })

  it('shows its own options where a message of the library names one of the library [H.01]', () => {
    expect(withFlags('to allow it, use option approvals.mode: all or option approvals.rules')).toBe(
      'to allow it, use --approve all or --approve FILE',
    )
    expect(withFlags('name a model (option model): see the option list')).toBe(
      'name a model (--model): see the option list',
    )
  })

  it('lists no runs where there are none', async () => {
    expect(await cli(['runs', 'list'])).toMatchObject({
      code: 0,
      stdout: expect.stringContaining('no runs yet'),
    })
    expect(await cli(['runs', 'list', '--json'])).toMatchObject({ code: 0, stdout: '' })
  })

  it('lists a run with a damaged journal with its problem, and shows why', async () => {
    const home = await temporaryFolder('cli-home')
    const run = path.join(home, 'runs', 'run-00000000000000000001')
    await mkdir(run, { recursive: true, mode: 0o700 })
    await writeFile(path.join(run, 'journal.jsonl'), '{"seq":1,"\u001b[2J":1}\n')
    const listed = await cli(['runs', 'list'], { CAISSON_HOME: home })
    expect(listed.stdout).toMatch(/damaged .*journal line 1/)
    const shown = await cli(['runs', 'show', '0000'], { CAISSON_HOME: home })
    expect(shown).toMatchObject({ code: 4, stderr: expect.stringContaining('journal line 1') })
  })

  it.each([
    ['mcp-pins.json', ['mcp', 'list']],
    ['egress-grants.json', ['policy', 'revoke']],
    [path.join('memory', 'notes.jsonl'), ['memory', 'list']],
  ])('exits with 4 for damage, whichever file it is in: %s [E.02]', async (name, argv) => {
    const home = await temporaryFolder('cli-home')
    await mkdir(path.join(home, 'memory'), { mode: 0o700 })
    const file = path.join(home, name)
    // Notes are read line by line, so what damages them is their size.
    await writeFile(file, name.endsWith('.jsonl') ? Buffer.alloc(17 * 1024 * 1024) : 'junk', { mode: 0o600 })
    const { code, stderr } = await cli(argv, { CAISSON_HOME: home })
    expect(stderr).toContain(file)
    expect(code).toBe(4)
  })
})
