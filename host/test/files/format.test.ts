import { spawnSync } from 'node:child_process'
import { expect, it } from 'vitest'
import { formatDate } from '../../files/format.ts'

const module = new URL('../../files/format.ts', import.meta.url).href
const winter = Date.UTC(2026, 10, 23, 23, 14)
const summer = Date.UTC(2026, 6, 1, 23, 14)

/** Times as a process with this TZ shows them: winter, summer, and the date of winter. */
function timesIn(zone: string): string[] {
  const code = `
    const { formatTime, formatDate } = await import(${JSON.stringify(module)})
    console.log([formatTime(${winter}), formatTime(${summer}), formatDate(${winter})].join('\\n'))`
  const { stdout, stderr } = spawnSync(process.execPath, ['--input-type=module', '-e', code], {
    env: { ...process.env, TZ: zone },
    encoding: 'utf8',
  })
  expect(stderr).toBe('')
  return stdout.trim().split('\n')
}

it('shows a time in the zone of TZ with its offset from UTC [H.01]', () => {
  expect(timesIn('Europe/Berlin')).toEqual([
    '2026-11-24 00:14 +01:00',
    '2026-07-02 01:14 +02:00',
    '2026-11-24',
  ])
  expect(timesIn('America/St_Johns')).toEqual([
    '2026-11-23 19:44 -03:30',
    '2026-07-01 20:44 -02:30',
    '2026-11-23',
  ])
  expect(timesIn('UTC')).toEqual(['2026-11-23 23:14 UTC', '2026-07-01 23:14 UTC', '2026-11-23'])
})

it('a time that no calendar has, as a damaged file may name, is shown as the last one', () => {
  expect(formatDate(Number.MAX_SAFE_INTEGER)).toMatch(/^9999-12-/)
})
