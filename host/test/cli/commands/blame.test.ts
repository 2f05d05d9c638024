// Which call made a line, as a person asks for it from the command line.
import { PassThrough } from 'node:stream'
import { text } from 'node:stream/consumers'
import { expect, it } from 'vitest'
import { runCli } from '../../../cli/main.ts'
import { runThatTold } from '../../blame/support.ts'
import { changedRunId } from '../../support/changed-run.ts'

const [one, two] = ['const a = 1\nconst b = 2\n', 'const a = 1\nconst b = 3\n']
const evil = 'evil \u001b[2J\u202e line'

async function place(columns?: number) {
  const run = await runThatTold(
    { f: one, gone: 'x\n' },
    { f: `${two}${evil}\n`, 'a:1': 'x\n' },
    async (told) => {
      await told.turn(1, ['c1'])
      await told.edit([['f', one, two]])
      await told.command('echo "\u001b[2J" >> f')
      await told.call('delete_file', { path: 'gone' }, { writes: ['gone'] })
      await told.edit([['a:1', '', 'x\n']])
    },
  )
  const caisson = async (...argv: string[]) => {
    const [stdin, stdout, stderr] = [new PassThrough(), new PassThrough(), new PassThrough()]
    if (columns !== undefined) Object.assign(stdout, { isTTY: true, columns })
    const { env, directory } = run
    const words = ['workspace', 'blame', ...argv]
    const code = await runCli(words, { stdin, stdout, stderr, env, version: '0', directory })
    stdout.end()
    stderr.end()
    return { code, stdout: await text(stdout), stderr: await text(stderr) }
  }
  return { ...run, caisson }
}

it('workspace blame shows the call of each line in a column, and keeps what the guest wrote as text [W.09]', async () => {
  const { caisson } = await place()
  const { code, stdout } = await caisson('last', 'f')
  expect(code).toBe(0)
  expect(stdout.split('\n')).toEqual([
    '                 1) const a = 1',
    'work.1 edit_file 2) const b = 3',
    expect.stringMatching(/^work run_bash +3\) evil \\e\[2J\\u\{202e\} line$/),
    '',
  ])
  expect(await caisson('last', 'gone')).toMatchObject({
    code: 0,
    stdout: expect.stringMatching(/^The run deleted gone\.\n\ncall {6}delete_file c3/),
  })
})

it('workspace blame FILE:LINE shows the call, its turn, task and approval; a file can have such a name itself [W.09]', async () => {
  const { caisson } = await place()
  const { code, stdout } = await caisson(changedRunId, 'f:2')
  expect(code).toBe(0)
  const expected = [`f:2 of ${changedRunId}`, '  │ const b = 3', 'call      edit_file c1', '{"path":"f"}']
  for (const part of [...expected, 'turn      1', 'thought 1', 'task\n  │ p', 'approval  none was asked'])
    expect(stdout).toContain(part)
  expect((await caisson('last', 'f:1')).stdout).toContain('Line 1 of f, as it went into the VM.')
  expect((await caisson('last', 'f:3')).stdout).toContain('run_bash')
  expect((await caisson('last', 'a:1')).stdout).toBe('work edit_file 1) x\n')
  expect((await caisson('last', 'a:1:1')).stdout).toContain('a:1:1 of')
})

it('workspace blame fits a narrow terminal, prints JSON, and says what is wrong [W.09]', async () => {
  const { caisson } = await place(24)
  const narrow = (await caisson('last', 'f')).stdout
  for (const row of narrow.split('\n')) expect(row.length).toBeLessThanOrEqual(24)
  const whole = JSON.parse((await caisson('last', 'f', '--json')).stdout)
  expect(whole).toMatchObject({ path: 'f', change: 'modified', calls: [{ callId: 'c1' }, { callId: 'c2' }] })
  const alone = JSON.parse((await caisson('last', 'f:3', '--json')).stdout)
  expect(alone).toMatchObject({
    lines: [{ line: 3, origin: { kind: 'call', call: 0 } }],
    calls: [{ callId: 'c2' }],
  })
  expect(alone.lines).toHaveLength(1)
  expect(await caisson('last', 'f:4')).toMatchObject({
    code: 2,
    stderr: expect.stringContaining('no line 4'),
  })
  expect(await caisson('last', 'none')).toMatchObject({
    code: 2,
    stderr: expect.stringContaining('no change of'),
  })
})
