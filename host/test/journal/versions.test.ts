// Journals as earlier versions wrote them, one line of each event that there was then, opened by this version.
import { copyFile, mkdir, readdir } from 'node:fs/promises'
import path from 'node:path'
import { PassThrough } from 'node:stream'
import { expect, it } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { runCli } from '../../cli/main.ts'
import { Host } from '../../host.ts'

const fixtures = path.join(import.meta.dirname, 'fixtures')

/** Lines of each; a fixture that is there stays as it is. */
const lines: Readonly<Record<string, number>> = {
  '2026-11-22.jsonl': 44,
  '2026-11-23.jsonl': 50,
  '2026-11-24.jsonl': 52,
}

/** A state folder with the journal, without its summary. */
async function withJournal(file: string) {
  const home = await temporaryFolder('versions')
  const env = { HOME: home, CAISSON_HOME: path.join(home, 'state'), TZ: 'UTC' }
  const host = new Host({ env })
  const runId = `run-${file.slice(0, 10).replaceAll('-', '')}000000000000`
  const { directory, journal } = host.runs.paths(runId)
  await mkdir(directory, { recursive: true, mode: 0o700 })
  await copyFile(path.join(fixtures, file), journal)
  return { host, runId, env }
}

async function shown(env: Record<string, string>, ...argv: string[]): Promise<string> {
  const stdout = new PassThrough()
  let text = ''
  stdout.on('data', (piece: Buffer) => {
    text += piece.toString()
  })
  const io = { stdin: new PassThrough(), stdout, stderr: new PassThrough(), env, version: '0' }
  expect(await runCli(argv, io)).toBe(0)
  return text
}

it('journals of each version are among the fixtures [S0.12]', async () => {
  expect((await readdir(fixtures)).sort()).toEqual(Object.keys(lines))
})

it.each(Object.keys(lines))(
  'the journal %s opens: its chain is checked, its state folded, the run listed and shown [S0.12, R.03]',
  async (file) => {
    const { host, runId, env } = await withJournal(file)
    const events = await host.runs.read(runId)
    expect(events).toHaveLength(lines[file] ?? 0)
    const { state, facts } = await host.runs.fold(runId)
    expect(facts).toMatchObject({ prompt: 'Write report.md about sales.csv', workspace: '/data/sales' })
    expect(state.end).toMatchObject({ outcome: 'completed' })
    expect(Object.keys(state.steps)).not.toEqual([])
    expect(state.changes?.entries).toBeGreaterThan(0)
    expect(await host.runs.list()).toMatchObject([{ id: runId, status: 'completed' }])
    expect(await shown(env, 'runs', 'show', runId, '-v')).toContain(`${events.length} events`)
    const json = await shown(env, 'runs', 'show', runId, '--json')
    expect(
      json
        .trimEnd()
        .split('\n')
        .map((line) => JSON.parse(line).hash),
    ).toEqual(events.map(({ hash }) => hash))
  },
)
