import { existsSync } from 'node:fs'
import { readdir, readFile } from 'node:fs/promises'
import path from 'node:path'
import { PassThrough } from 'node:stream'
import { expect, it } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { runCli } from '../../cli/main.ts'
import { runThatChanged } from '../support/changed-run.ts'
import { elsewhere, exported, runId } from './support.ts'

/** What a command prints, and its exit code. */
async function command(env: Readonly<Record<string, string>>, argv: readonly string[], isTTY = false) {
  const [stdout, stderr] = [new PassThrough(), new PassThrough()]
  const [out, err]: [Buffer[], Buffer[]] = [[], []]
  stdout.on('data', (piece: Buffer) => out.push(piece))
  stderr.on('data', (piece: Buffer) => err.push(piece))
  const io = { stdin: new PassThrough(), stdout: Object.assign(stdout, { isTTY }), stderr, env, version: '0' }
  const code = await runCli(argv, io)
  return { code, out: Buffer.concat(out), err: Buffer.concat(err).toString() }
}

it('export writes a file or standard output, never a terminal; import takes it, and names a file that is none [R.09, H.01]', async () => {
  const { host, env } = await runThatChanged({ 'a.txt': 'one\n' }, { 'a.txt': 'two\n' })
  const folder = await temporaryFolder('transfer')
  const file = path.join(folder, 'run.caisson')
  const archive = await exported(host)
  expect(await command(env, ['runs', 'export', runId, '-o', file])).toMatchObject({ code: 0 })
  expect((await readFile(file)).equals(archive)).toBe(true)
  expect(await readdir(folder)).toEqual(['run.caisson'])
  expect((await command(env, ['runs', 'export', runId])).out.equals(archive)).toBe(true)
  const terminal = await command(env, ['runs', 'export', runId], true)
  expect(terminal).toMatchObject({ code: 2, err: expect.stringContaining('standard output is a terminal') })

  const { home, directory } = await elsewhere()
  const there = { HOME: home, CAISSON_HOME: path.join(home, 'state') }
  const imported = await command(there, ['runs', 'import', file, '-w', directory])
  expect(imported).toMatchObject({ code: 0, err: '' })
  expect(imported.out.toString()).toBe(`imported ${runId}\nshow it: caisson runs show ${runId}\n`)
  expect(existsSync(path.join(home, 'state/runs', runId, 'imported.json'))).toBe(true)
  const missing = await command(there, ['runs', 'import', path.join(folder, 'none'), '-w', directory])
  expect(missing).toMatchObject({ code: 2, err: expect.stringContaining('cannot read') })
})
