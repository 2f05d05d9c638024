// Rules of this room that no compiler knows.
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'

const room = join(import.meta.dirname, '..')

describe('the agent', () => {
  it('never draws from Math.random, which is the same in every clone of a VM [S0.15]', () => {
    const sources = readdirSync(room, { recursive: true, encoding: 'utf8' }).filter(
      (name) => name.endsWith('.ts') && !name.startsWith('test/'),
    )
    expect(sources.length).toBeGreaterThan(20)
    const guilty = sources.filter((name) =>
      /\bMath\s*\.\s*random\s*\(/.test(readFileSync(join(room, name), 'utf8')),
    )
    expect(guilty).toEqual([])
  })
})
