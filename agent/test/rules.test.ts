// Rules of this room that no compiler knows.
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'

const room = join(import.meta.dirname, '..')

const shared = join(room, '../specs')

/** The agent's own code and what it shares with the host. */
function sources(): string[] {
  const isSource = (name: string) => name.endsWith('.ts') && !/(^|\/)test(ing)?\//.test(name)
  return [room, shared].flatMap((folder) =>
    readdirSync(folder, { recursive: true, encoding: 'utf8' })
      .filter(isSource)
      .map((name) => join(folder, name)),
  )
}

describe('the agent', () => {
  it.each([
    ['Math.random, which is seeded once', /\bMath\s*\.\s*random\s*\(/],
    ['randomInt, whose values Node keeps ready', /\brandomInt\b/],
    ['randomUUID, whose values Node keeps ready', /\brandomUUID\b(?!\(\{ disableEntropyCache: true \}\))/],
  ])('never draws from %s: it is the same in every copy of a VM [V.03]', (_, way) => {
    expect(sources().length).toBeGreaterThan(40)
    expect(sources().filter((file) => way.test(readFileSync(file, 'utf8')))).toEqual([])
  })
})
