// Journals that somebody wrote: the chain is right, and each value is as hostile as the schema allows, or more. Every
// command that reads a run ends, says why, writes nothing outside, and controls no terminal.
import { mkdir, readdir, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { PassThrough, Writable } from 'node:stream'
import { expect, it } from 'vitest'
import { agentExamples, hostExamples } from '#specs/node/event-examples.ts'
import { JournalEvent } from '#specs/protocol/event.ts'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { perTier } from '#specs/testing/tier.ts'
import { runCli } from '../../cli/main.ts'
import { Host } from '../../host.ts'
import { chainLine } from '../../journal/journal-lines.ts'
import { prepareFolders } from '../../state/folders.ts'
import { controls, type Dice, dice, twist } from '../support/twist.ts'

const examples = [
  ...Object.entries(hostExamples).map(([type, [, fields]]) => ({ source: 'host', type, fields })),
  ...Object.entries(agentExamples).map(([type, [, fields]]) => ({ source: 'agent', type, fields })),
]

/** An event that the schema accepts, of a few tries; else as it came. */
function forge(roll: Dice, isStrict: boolean): { source: string; event: object } {
  const { source, type, fields } = examples[roll(examples.length)] ?? { source: 'host', type: 'vm-kept' }
  for (let left = isStrict ? 40 : 1; ; left--) {
    const event = { type, ...(twist(fields, roll) as object) }
    const line = { seq: 1, at: 1, runId: `run-${'0'.repeat(20)}`, source, event }
    const end = { prev: '0'.repeat(64), hash: '0'.repeat(64) }
    const whole = { ...line, ...end, ...(source === 'agent' ? { agentPath: 'root', n: 1 } : {}) }
    if (left === 0) return { source, event: { type, ...fields } }
    if (!isStrict || JournalEvent.safeParse(whole).success) return { source, event }
  }
}

/** A journal of such events with a chain that fits. */
function journalOf(runId: string, roll: Dice, workspace: string): string {
  let prev = '0'.repeat(64)
  const lines: string[] = []
  const isStrict = roll(4) !== 0
  const start = {
    source: 'host',
    event: { type: 'run-start', ...hostExamples['run-start'][1], directory: workspace },
  }
  const all = [start, ...Array.from({ length: 5 + roll(40) }, () => forge(roll, isStrict))]
  all.forEach(({ source, event }, at) => {
    const moments = [0, Date.now(), 8.64e15, Number.MAX_SAFE_INTEGER]
    const body = {
      seq: at + 1,
      at: moments[roll(moments.length)],
      runId,
      source,
      ...(source === 'agent'
        ? { agentPath: ['root', 'root/a', 'root/__proto__'][roll(3)], n: 1 + roll(3) }
        : {}),
      event,
      prev,
    }
    const { line, hash } = chainLine(body as never)
    prev = hash
    lines.push(`${line}\n`)
  })
  return lines.join('')
}

it(
  'reads journals with a valid chain and hostile content without a fault, and shows them harmless [S1.12 H.01]',
  async () => {
    const home = await temporaryFolder('forged')
    const workspace = await temporaryFolder('forged-workspace')
    await writeFile(path.join(workspace, 'a.txt'), 'a\n')
    const env = { CAISSON_HOME: home, PATH: process.env.PATH, COLUMNS: '100' }
    const host = new Host({ env })
    await prepareFolders(host.folders)
    const said = async (...argv: string[]) => {
      let text = ''
      const to = () =>
        new Writable({
          write: (chunk, _, done) => {
            text += String(chunk)
            done()
          },
        })
      const code = await runCli(argv, {
        stdin: new PassThrough(),
        stdout: to(),
        stderr: to(),
        env,
        version: '0',
      })
      return { code, text, argv }
    }
    const seed = 20_261_124
    const rounds = perTier(25, 150)
    for (let round = 0; round < rounds; round++) {
      const runId = `run-${String(round).padStart(20, '0')}`
      const directory = path.join(host.folders.runs, runId)
      await mkdir(directory, { mode: 0o700 })
      await writeFile(path.join(directory, 'journal.jsonl'), journalOf(runId, dice(seed + round), workspace))
      const commands = [
        ['runs', 'show', runId],
        ['runs', 'show', '-v', runId],
        ['runs', 'show', '--json', runId],
        ['attach', runId],
        ['runs', 'list', '--last', '3'],
        ['approvals', 'list', runId],
        ['runs', 'resume', runId],
        ['memory', 'keep', runId],
        ['workspace', 'diff', runId],
        ['workspace', 'apply', runId, '--all'],
        ['workspace', 'undo', runId],
      ]
      for (const argv of commands) {
        const { code, text } = await said(...argv)
        const what = `seed ${seed + round}: caisson ${argv.join(' ')}: ${text.slice(0, 2_000)}`
        expect([0, 1, 2, 3, 4, 5, 6, 7, 8], what).toContain(code)
        expect(text, what).not.toMatch(controls)
        expect(text, what).not.toMatch(/TypeError|RangeError|ZodError|\bat .*\.ts:\d+|internal:/)
      }
    }
    expect(await readdir(workspace)).toEqual(['a.txt'])
    expect(await readdir(process.cwd())).not.toContain('owned')
  },
  perTier(120_000, 600_000),
)
