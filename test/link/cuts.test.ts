// The link cut at each byte of a conversation, in both directions of both ports.
import { expect, it } from 'vitest'
import { perTier } from '#specs/testing/tier.ts'
import { type Conversation, type ConversationFaults, converse } from './conversation.ts'
import { cutEach, placesOf } from './cut.ts'
import { converseShortly } from './short-conversation.ts'

/** Where only some of the bytes are cut, each day it is at others. */
const today = Math.floor(Date.now() / 86_400_000)
/** Of a whole process with many runs at once; what is kept of each run would be gigabytes. */
const maxRssBytes = 1024 ** 3

async function cutAt(
  converse: (faults?: ConversationFaults) => Promise<Conversation>,
  strides: Record<'rpc' | 'http', number>,
): Promise<void> {
  const undisturbed = await converse()
  expect(undisturbed).toMatchObject({ sessions: 1, faults: 0, outcome: { isCounted: true, bugs: [] } })
  const places = placesOf(undisturbed, (port) => strides[port], today)
  const { failures, ...report } = await cutEach(converse, undisturbed, places)
  const rssBytes = process.memoryUsage().rss
  console.log(
    JSON.stringify({
      bytes: undisturbed.bytes,
      strides,
      today,
      ...report,
      failed: failures.length,
      rssBytes,
    }),
  )
  expect(failures).toEqual([])
  // How many acknowledgements there are depends on the time, so the last bytes may not be reached.
  expect(report.cuts).toBeGreaterThan(places.length * 0.95)
  expect(rssBytes).toBeLessThan(maxRssBytes)
}

it('loses nothing and doubles nothing wherever one message of each kind is cut, whoever begins the next session [R.02, C.03, C.04]', async () => {
  const stride = perTier(12, 1)
  await cutAt(converseShortly, { rpc: stride, http: stride })
})

it('completes a task with the same files, work, question and change set wherever its run is cut [R.02, C.03, S1.10]', async () => {
  await cutAt(converse, perTier({ rpc: 600, http: 4_000 }, { rpc: 40, http: 250 }))
})
