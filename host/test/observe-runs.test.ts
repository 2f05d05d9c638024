// Observers of a host: real runs that are cancelled before they have an image.
import { expect, it } from 'vitest'
import type { JournalEvent } from '#specs/protocol/event.ts'
import { placeOfRuns } from './support/changed-run.ts'

it('an observer gets each event of a run in order, until it ends, whatever another one throws [H.05]', async () => {
  const { host, directory } = await placeOfRuns({})
  const seen: JournalEvent[] = []
  const warned: string[] = []
  const onWarning = ({ message }: Error) => warned.push(message)
  process.on('warning', onWarning)
  try {
    const endBroken = host.observeRuns({
      event: () => {
        throw new Error('a broken observer')
      },
    })
    const ended: string[] = []
    const observer = {
      event: (event: JournalEvent) => void seen.push(event),
      end: (runId: string) => void ended.push(runId),
    }
    const [end, endTwice] = [host.observeRuns(observer), host.observeRuns(observer)]
    endTwice()
    const start = async () => {
      const run = await host.run({ prompt: 'x', workspace: directory, approvals: { interactive: true } })
      await run.cancel({ now: true })
      await run.result()
      return run.id
    }
    const first = await start()
    expect(seen.map(({ runId, seq }) => [runId, seq])).toEqual(seen.map((_, index) => [first, index + 1]))
    expect([seen[0]?.event.type, seen.at(-1)?.event.type]).toEqual(['run-start', 'run-end'])
    expect(seen).toEqual(await host.runs.read(first))
    await expect.poll(() => ended).toEqual([first])
    const { length } = seen
    end()
    endBroken()
    await start()
    expect(seen).toHaveLength(length)
    await expect.poll(() => warned.some((text) => text.includes('a broken observer'))).toBe(true)
  } finally {
    process.off('warning', onWarning)
  }
})
