// What is noticed of a journal that lost lines, and what always fits into one that a guest fills.
import { spawnSync } from 'node:child_process'
import { appendFile, readFile, rm, truncate, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { beforeEach, describe, expect, it } from 'vitest'
import type { HostEvent, JournalEvent } from '#specs/protocol/event.ts'
import { initialRunState, reduceRun } from '#specs/protocol/run-state.ts'
import { noUsage } from '#specs/protocol/task.ts'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { perTier } from '#specs/testing/tier.ts'
import { Journal, readJournal } from '../../journal/journal.ts'
import { scanJournal } from '../../journal/journal-lines.ts'
import { readOutline, readSummary, readWholeJournal, summaryFile } from '../../journal/journal-summary.ts'
import { RunFold } from '../../journal/run-outline.ts'

const runId = 'run-00000000000000000001'
const sha256 = 'c'.repeat(64)
const note = (text: string) =>
  ({ source: 'agent', agentPath: 'root', n: 1, event: { type: 'note', level: 'info', text } }) as const
const fact = (event: HostEvent) => ({ source: 'host', event }) as const
const runEnd: HostEvent = {
  type: 'run-end',
  ...{ outcome: 'failed', reason: 'protocol_violation', message: 'm', summary: '' },
  usage: noUsage,
  durationMs: 1,
}
/** What the host has to be able to write whatever the guest did. */
const lastLines: readonly HostEvent[] = [
  { type: 'host-tool-end', callId: 'c1', tool: 't', durationMs: 1 },
  { type: 'cancel-request', by: 'a person' },
  {
    type: 'changes-ready',
    entries: 1_000,
    contentBytes: 5,
    flagged: Array.from({ length: 1_000 }, () => 'f'.repeat(255)),
    sha256,
  },
  { type: 'vm-end', expected: false, message: 'm' },
  runEnd,
  { type: 'apply-start', paths: 1, sha256 },
  { type: 'apply-end', applied: 1, leftOut: 0, conflicts: [], failed: [], total: 1 },
  { type: 'undo-start', paths: 1 },
  { type: 'undo-end', restored: 1, conflicts: [], total: 0 },
]

/** Bytes between two that are tried. */
const stride = perTier(7, 1)

let file: string

beforeEach(async () => {
  file = path.join(await temporaryFolder('journal'), 'journal.jsonl')
})

/** A journal that its writer closed. */
async function writeClosed(): Promise<Buffer> {
  {
    await using journal = await Journal.open({
      runId,
      path: file,
      locks: path.dirname(file),
      now: () => 1_000,
    })
    for (const text of ['one', 'two \u2028 \u00e4', 'three']) await journal.append(note(text))
    await journal.append(fact(runEnd))
  }
  return await readFile(file)
}

describe('a journal that was closed', () => {
  it('is not read as whole when it is cut at any byte [S0.12]', async () => {
    const whole = await writeClosed()
    expect(await readWholeJournal(file, runId, () => undefined)).toMatchObject({ length: 'closed' })
    for (let length = whole.length - 1; length >= 0; length -= stride) {
      await truncate(file, length)
      await expect(readJournal(file, runId), `cut to ${length} bytes`).rejects.toMatchObject({
        code: 'state_corrupted',
      })
      await expect(readOutline(file, runId), `cut to ${length} bytes`).rejects.toMatchObject({
        code: 'state_corrupted',
      })
    }
  })

  it('is not read as whole with any one bit changed [S0.12]', async () => {
    const whole = await writeClosed()
    for (let at = 0; at < whole.length; at += stride) {
      const changed = Buffer.from(whole)
      changed[at] = (changed[at] as number) ^ (1 << (at % 8))
      await writeFile(file, changed)
      await expect(readJournal(file, runId), `byte ${at}`).rejects.toMatchObject({ code: 'state_corrupted' })
    }
  })

  it.each([
    ['zeros', Buffer.alloc(4_096)],
    ['bytes of no text', Buffer.alloc(300_000, 0xff)],
    ['an empty line', Buffer.from('\n')],
    ['a line of its own form', Buffer.from('{"seq":5}\n')],
  ])('is not read as whole with %s behind its end [S0.12]', async (_, stray) => {
    await writeClosed()
    await appendFile(file, stray)
    await expect(readJournal(file, runId)).rejects.toMatchObject({ code: 'state_corrupted' })
    await expect(readOutline(file, runId)).rejects.toMatchObject({ code: 'state_corrupted' })
    await expect(Journal.open({ runId, path: file, locks: path.dirname(file) })).rejects.toMatchObject({
      code: 'state_corrupted',
    })
  })

  it('is missed by name when it is gone, and is not restarted [S0.12]', async () => {
    await writeClosed()
    await rm(file)
    await expect(readJournal(file, runId)).rejects.toThrow(/there is no journal .*caisson runs rm/)
    await expect(Journal.open({ runId, path: file, locks: path.dirname(file) })).rejects.toThrow(
      /there is no journal/,
    )
  })
})

describe('a journal whose writer was killed', () => {
  it('shows that it lost lines from before the last barrier, and is never called whole [S0.12]', async () => {
    const journal = await Journal.open({ runId, path: file, locks: path.dirname(file) })
    await journal.append(note('one'))
    await journal.append(fact({ type: 'apply-start', paths: 1, sha256 }))
    const told = (await readFile(file)).length
    await journal.append(note('behind the barrier'))
    const whole = await readFile(file)
    for (let length = whole.length; length >= 0; length -= 1) {
      await truncate(file, length)
      const reading = readWholeJournal(file, runId, () => undefined)
      if (length < told)
        await expect(reading, `cut to ${length} bytes`).rejects.toMatchObject({ code: 'state_corrupted' })
      else
        expect(await reading).toMatchObject({
          length: 'open',
          tornBytes: length === whole.length ? 0 : length - told,
        })
    }
    await journal.close().catch(() => undefined)
  })
})

describe('the summary beside a journal', () => {
  const lines: readonly HostEvent[] = [
    { type: 'session-start', session: 1, resumed: false },
    ...lastLines,
    { type: 'hook-end', point: 'after-run', hook: 'h', decision: 'deny', reason: 'r', durationMs: 1 },
  ]

  it('tells after every line what the fold over the whole journal tells, and is made anew from it [S0.12]', async () => {
    await using journal = await Journal.open({ runId, path: file, locks: path.dirname(file) })
    for (const event of lines) {
      await journal.append(fact(event))
      const events = await readJournal(file, runId)
      const state = events.reduce(reduceRun, initialRunState)
      const { outline } = await readOutline(file, runId)
      const { changes, applied, unfinished, heldBack, phase } = state
      expect(outline.state).toMatchObject({ applied, unfinished, heldBack, phase })
      expect(outline.state.changes).toEqual(changes === null ? null : { entries: changes.entries })
      const fold = new RunFold()
      await scanJournal(file, runId, (line, end) => fold.next(line, end))
      expect(outline).toEqual(fold.outline)
    }
    const { outline } = await readOutline(file, runId)
    await rm(summaryFile(file))
    expect(await readOutline(file, runId)).toMatchObject({ outline, isMadeAnew: true })
    await writeFile(summaryFile(file), '{"version":1,"se')
    expect(await readOutline(file, runId)).toMatchObject({ outline, isMadeAnew: true })
  })

  it('leaves a list little to read of a journal without barriers', async () => {
    await using journal = await Journal.open({ runId, path: file, locks: path.dirname(file) })
    const text = 'x'.repeat(16_000)
    for (let count = 0; count < 700; count += 1) await journal.append(note(text))
    const { length } = await readFile(file)
    const told = (await readSummary(file))?.bytes ?? 0
    expect(length).toBeGreaterThan(10 * 1024 * 1024)
    expect(length - told).toBeLessThan(5 * 1024 * 1024)
  })
})

describe('a journal that a guest fills', () => {
  it.each([1, 2, 3, 4, 5, 6, 7, 8])(
    'takes every last line of the host, within its bounds, whatever fills it (seed %i) [S0.12]',
    async (seed) => {
      const random = randomFrom(seed)
      const bounds = { maxEvents: 400, maxBytes: 800_000, reservedEvents: 40, reservedBytes: 300_000 }
      await using journal = await Journal.open({ runId, path: file, locks: path.dirname(file), bounds })
      // Large lines reach the bound of bytes, small ones that of events.
      const largest = seed % 2 === 0 ? 15_000 : 50
      const guestLine = () =>
        random() < 0.8
          ? note('x'.repeat(Math.floor(random() * largest)))
          : fact({ type: 'egress-denied', target: 't'.repeat(Math.floor(random() * 400)), reason: 'r' })
      let refused = 0
      while (refused < 20)
        await journal.append(guestLine()).catch((error: unknown) => {
          expect(error).toMatchObject({ code: 'limit_reached' })
          refused += 1
        })
      for (const event of lastLines) await journal.append(fact(event))
      await expect(journal.append(note('x'.repeat(15_000)))).rejects.toMatchObject({ code: 'limit_reached' })
      const events = await readJournal(file, runId)
      expect(events.slice(-lastLines.length).map(({ event }) => event)).toEqual(lastLines)
      expect(events.length).toBeLessThanOrEqual(bounds.maxEvents)
      expect((await readFile(file)).length).toBeLessThanOrEqual(bounds.maxBytes)
      // No bound stands in the way of what a person does, however often.
      for (let round = 0; round < bounds.reservedEvents; round += 1)
        await journal.append(fact({ type: 'undo-start', paths: 0 }))
    },
    30_000,
  )
})

describe.runIf(process.platform === 'linux')('a journal on a full disk', () => {
  it('refuses the line that did not fit, and continues in the chain once there is space [S0.12]', async () => {
    const script = path.join(import.meta.dirname, 'journal-writer.ts')
    // A bound on the size of files is what a full disk is to this one process.
    const child = spawnSync(
      'prlimit',
      ['--fsize=8192:unlimited', process.execPath, '--conditions=caisson-source', script, file, runId],
      { encoding: 'utf8', timeout: 60_000 },
    )
    expect(child.stderr).toBe('')
    const { refused, kept } = JSON.parse(child.stdout) as { refused: number; kept: number }
    expect(refused).toBeGreaterThan(0)
    const events: JournalEvent[] = []
    expect(await readWholeJournal(file, runId, (event) => events.push(event))).toMatchObject({
      length: 'closed',
    })
    expect(events).toHaveLength(kept)
    expect(events.at(-1)?.event.type).toBe('run-end')
  })
})

/** Numbers from 0 to 1, the same for the same seed (a linear congruence, Numerical Recipes). */
function randomFrom(seed: number): () => number {
  let state = seed
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0
    return state / 2 ** 32
  }
}
