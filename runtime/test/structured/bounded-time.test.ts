import { expect, it } from 'vitest'
import { isOutOfTime, withinTime } from '#specs/node/bounded-time.ts'
import { openSchema } from '#specs/node/json-schema.ts'

it('work that never gives way ends with its time, and is distinguished from what fails by itself [T.02]', () => {
  const thrownBy = (work: () => void, timeMs = 60_000): unknown => {
    try {
      return withinTime(work, timeMs)
    } catch (error) {
      return error
    }
  }
  const endless = thrownBy(() => {
    for (;;);
  }, 50)
  expect(isOutOfTime(endless)).toBe(true)
  const own = new Error('own')
  expect(thrownBy(() => thrownBy(() => undefined))).toBeUndefined()
  expect(
    thrownBy(() => {
      throw own
    }),
  ).toBe(own)
  expect(isOutOfTime(own)).toBe(false)
})

it('work that ran out of time because the machine was busy is done once more [T.02]', () => {
  let calls = 0
  const result = withinTime(() => {
    calls += 1
    for (; calls === 1; );
    return 'done'
  }, 50)
  expect({ result, calls }).toEqual({ result: 'done', calls: 2 })
})

it('a model hears that its pattern takes too long, not of our scripts [T.02]', async () => {
  const opened = await openSchema({ type: 'string', pattern: '^(a+)+$' })
  expect(opened.ok && opened.value.check(`${'a'.repeat(40)}!`)).toEqual({
    ok: false,
    error: 'the schema itself cannot be checked: its patterns or references take too long',
  })
})
