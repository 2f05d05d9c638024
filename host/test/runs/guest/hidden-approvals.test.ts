import { setImmediate } from 'node:timers/promises'
import { describe, expect, it } from 'vitest'
import { HiddenApprovals } from '../../../runs/guest/agent-control.ts'

describe('questions that the agent does not know of', () => {
  it('learn when the first begins and when the last ends, one after the other however slow the telling is [S1.11]', async () => {
    const told: string[] = []
    const slow = Promise.withResolvers<void>()
    const questions = new HiddenApprovals(async (waiting) => {
      told.push(`say ${waiting}`)
      if (waiting) await slow.promise
      told.push(`said ${waiting}`)
    })
    for (const change of [1, 1, -1, -1]) questions.hold(change)
    await setImmediate()
    expect(told).toEqual(['say true'])
    slow.resolve()
    await expect.poll(() => told).toEqual(['say true', 'said true', 'say false', 'said false'])
  })
})
