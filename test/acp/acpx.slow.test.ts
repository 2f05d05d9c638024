// A client of others: acpx, installed by its lock, asks a real `caisson acp` for work.
import { execFile } from 'node:child_process'
import { existsSync } from 'node:fs'
import { cp, mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { promisify } from 'node:util'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { reply } from '#specs/testing/model-replies.ts'
import { cliProgram } from '../../host/test/support/cli-program.ts'
import { call, editorPlace, hasResult, useMachine, vmFlags } from './support.ts'

const run = promisify(execFile)
const machine = useMachine()
let folder = ''

beforeAll(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'caisson-acpx-'))
  await cp(path.join(import.meta.dirname, 'acpx'), folder, { recursive: true })
  const { NODE_OPTIONS: _, ...env } = process.env
  const programs = `${path.dirname(process.execPath)}:${process.env.PATH}`
  await run('npm', ['ci', '--ignore-scripts', '--no-audit', '--no-fund'], {
    ...{ cwd: folder, env: { ...env, NODE_USE_SYSTEM_CA: '1', PATH: programs } },
  })
}, 300_000)
afterAll(async () => await rm(folder, { recursive: true, force: true }))

it.each([
  ['--approve-all', false],
  ['--deny-all', true],
] as const)(
  'acpx with %s gets an answer, and its choice decides [H.03 S1.11]',
  async (choice, isThere) => {
    const place = await editorPlace(machine(), { 'a.txt': 'a\n' }, (asked) =>
      hasResult(asked) ? reply({ text: 'I have looked after it.' }) : call('delete_file', { path: 'a.txt' }),
    )
    const agent = [process.execPath, '--conditions=caisson-source', cliProgram, 'acp', ...vmFlags].join(' ')
    const acpx = path.join(folder, 'node_modules/acpx/dist/cli.js')
    const argv = [acpx, '--agent', agent, '--cwd', place.workspace, choice, 'exec', 'Delete a.txt']
    // It fails where its person said no.
    const stdout = await run(process.execPath, argv, {
      ...{ cwd: place.workspace, env: { ...place.env, HOME: place.env.HOME ?? folder }, timeout: 120_000 },
    }).then(
      (ended) => ended.stdout,
      (error: { stdout: string }) => error.stdout,
    )
    expect(stdout).toContain('I have looked after it.')
    expect(existsSync(path.join(place.workspace, 'a.txt'))).toBe(isThere)
    const [ended] = await place.host.runs.list()
    expect(ended).toMatchObject({ state: { end: { outcome: 'completed' } } })
  },
  180_000,
)
