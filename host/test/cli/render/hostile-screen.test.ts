// What a guest or a forged feed makes a screen show, whatever the order, the numbers and the texts.
import { PassThrough } from 'node:stream'
import { expect, it } from 'vitest'
import { agentExamples, deltaExamples, hostExamples } from '#specs/node/event-examples.ts'
import { Delta, HostDelta, JournalEvent } from '#specs/protocol/event.ts'
import { perTier } from '#specs/testing/tier.ts'
import { ProgressView } from '../../../cli/render/progress.ts'
import type { FeedItem } from '../../../journal/run-feed.ts'
import { runId } from '../../support/run-values.ts'
import { controls, dice, twist } from '../../support/twist.ts'

/** Colors, cursor movements, erasing, automatic wrapping. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: these are our own
const ours = /\u001b\[(?:\d+(?:;\d+)*m|J|K|\d+A|\?7[hl])|\r/g
const hash = '0'.repeat(64)
const kinds = [
  ...Object.entries(hostExamples).map(([type, [, fields]]) => ({ from: 'host', type, fields })),
  ...Object.entries(agentExamples).map(([type, [, fields]]) => ({ from: 'agent', type, fields })),
  ...Object.entries(deltaExamples).map(([type, [, fields]]) => ({ from: 'delta', type, fields })),
]

/** An item that the schemas accept, or null. */
function itemOf(roll: (below: number) => number, seq: number): FeedItem | null {
  const { from, type, fields } = kinds[roll(kinds.length)] ?? { from: 'host', type: 'vm-kept', fields: {} }
  const content = { type, ...(twist(fields, roll) as object) }
  const agentPath = ['root', 'root/a', 'root/a/b', 'root/constructor'][roll(4)] ?? 'root'
  if (from === 'delta') {
    const delta = Delta.safeParse(content).data ?? HostDelta.safeParse(content).data
    return delta === undefined ? null : { source: 'delta', runId, agentPath, delta }
  }
  const line = { seq, at: seq, runId, source: from, event: content, prev: hash, hash }
  return JournalEvent.safeParse(from === 'agent' ? { ...line, agentPath, n: seq } : line).data ?? null
}

it(
  'shows nothing that controls the terminal, and stays quick, for any feed that the schemas accept [S1.10 H.01]',
  async () => {
    const seed = 20_261_124
    for (let round = 0; round < perTier(20, 100); round++) {
      const roll = dice(seed + round)
      const out = Object.assign(new PassThrough(), {
        isTTY: true,
        columns: 40 + roll(100),
        rows: 10 + roll(40),
      })
      let shown = ''
      out.on('data', (part: Buffer) => (shown += part.toString()))
      const view = new ProgressView(out, { verbose: roll(2) === 0, reasoning: roll(2) === 0 })
      const begun = performance.now()
      for (let seq = 1; seq <= 150; seq++) {
        const item = itemOf(roll, seq)
        if (item !== null) view.show(item)
        if (seq % 50 === 0) {
          view.pause()
          view.resume()
          await new Promise((resolve) => setTimeout(resolve, 130))
        }
      }
      view.end()
      const what = `seed ${seed + round}`
      expect(performance.now() - begun, what).toBeLessThan(10_000)
      const rest = shown.replace(ours, '')
      expect(rest, `${what}: ${rest.slice(0, 3_000)}`).not.toMatch(controls)
    }
  },
  perTier(60_000, 300_000),
)
