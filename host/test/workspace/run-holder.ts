// A process of its own that holds a run, or tries to write to its journal.

import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { hasCode } from '#specs/errors.ts'
import { Journal } from '../../journal/journal.ts'
import { RunLock } from '../../workspace/run-lock.ts'

const [job = '', locks = '', runId = '', ...more] = process.argv.slice(2)

/** Takes the run, and with a further argument that directory, says what came of it, and lives on. */
async function hold(): Promise<void> {
  const lock = await RunLock.take(locks, runId)
  const [root] = more
  const held = root === undefined ? undefined : await lock.holdDirectory(root)
  process.send?.(held === undefined || held.ok ? 'holds' : held.error.message)
  await sleep(1_000_000)
}

/** Opens the journal again and again, writes some lines each time, until so many were written; killed it is in the midst. */
async function write(): Promise<void> {
  const [file = '', count = '0', lives = ''] = more
  for (let written = 0; written < Number(count); ) {
    try {
      await using journal = await Journal.open({ runId, path: file, locks })
      for (let line = 0; line < 3 && written < Number(count); line++, written++) {
        const event = {
          type: 'note',
          level: 'info',
          text: `${path.basename(file)} ${process.pid} ${written}`,
        } as const
        await journal.append({ source: 'agent', agentPath: 'root', n: written + 1, event })
      }
      if (lives === 'dies') process.kill(process.pid, 'SIGKILL')
    } catch (error) {
      if (!hasCode(error, 'run_busy')) throw error
      await sleep(Math.random() * 50)
    }
  }
}

await (job === 'hold' ? hold() : write())
