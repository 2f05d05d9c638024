// What both sides hold while one of them does not read: bounded, and measured.
import { expect, it } from 'vitest'
import { limits } from '#specs/protocol/limits.ts'
import { completion, note, runId, task, until, wait } from '../../host/test/support/run-values.ts'
import { createWorld } from './support.ts'

const mebibyte = 1024 * 1024

/** Of heap and buffers, after a collection where the process offers one. */
function usedBytes(): number {
  globalThis.gc?.()
  const { heapUsed, external } = process.memoryUsage()
  return heapUsed + external
}

it('a host that handles no events makes the agent wait, and both hold a few messages of each [R.02, C.03]', async () => {
  const gate = Promise.withResolvers<void>()
  await using world = createWorld({ handlers: { onEvent: () => gate.promise } })
  const guest = world.startGuest()
  await world.link.submitTask(task)
  const text = 'x'.repeat(limits.textMaxChars)
  const before = usedBytes()
  let emitted = 0
  const emitting = (async () => {
    for (let index = 0; index < 4_000; index++) {
      await guest.emitEvent(runId, 'root', note(text))
      emitted++
    }
  })()
  await until(() => emitted >= limits.eventBufferMaxCount, 'a full buffer')
  // Sessions that end meanwhile send it all again, which may not add up.
  for (let round = 0; round < 10; round++) {
    const sessions = world.seen.sessions.length
    world.link.restartSession('again')
    await until(() => world.seen.sessions.length > sessions, 'the next session')
  }
  await wait(100)
  const heldBytes = usedBytes() - before
  console.log(JSON.stringify({ emitted, heldMiB: Math.round(heldBytes / mebibyte) }))
  expect(emitted).toBe(limits.eventBufferMaxCount)
  expect(heldBytes).toBeLessThan(160 * mebibyte)
  gate.resolve()
  await emitting
  expect((await guest.complete(completion)).ok).toBe(true)
})

it('an agent whose host has gone quiet holds no more deltas and log lines than their bounds [R.02, C.03]', async () => {
  await using world = createWorld({ timings: { heartbeatIntervalMs: 60_000 } })
  const guest = world.startGuest()
  await world.link.submitTask(task)
  world.rpc.host.pause()
  const text = 'y'.repeat(8_000)
  const before = usedBytes()
  for (let index = 0; index < 20_000; index++) {
    const delta = { type: 'text-delta', stepId: 's', turn: 1, offset: index * text.length, text } as const
    guest.emitDelta(runId, 'root', delta)
    guest.log({ level: 'info', message: text, fields: '{}' })
    if (index % 500 === 0) await wait(1)
  }
  const heldBytes = usedBytes() - before
  console.log(JSON.stringify({ givenMiB: 300, heldMiB: Math.round(heldBytes / mebibyte) }))
  expect(heldBytes).toBeLessThan(64 * mebibyte)
})
