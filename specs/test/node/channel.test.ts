import { PassThrough } from 'node:stream'
import { expect, it } from 'vitest'
import { Channel } from '../../node/channel.ts'

it('leaves a port as it found it but for one listener, however many channels it had, and a late error ends nothing [C.03]', () => {
  const port = new PassThrough()
  const count = () => port.eventNames().reduce((sum, name) => sum + port.listenerCount(name), 0)
  const before = count()
  for (let turn = 0; turn < 30; turn += 1) {
    new Channel(
      port,
      () => undefined,
      () => undefined,
    ).release()
  }
  expect(count()).toBe(before + 1)
  expect(() => port.emit('error', new Error('late'))).not.toThrow()
})
