/** What an application may get wrong, and what a refusal of it is; for property tests of the public methods. */
import fc from 'fast-check'
import { expect } from 'vitest'
import { CaissonError, errorCodes, hasCode } from '#specs/errors.ts'

export const hostileRuns = { seed: 20_261_122, numRuns: 60 }

export const wrongText = fc.anything().filter((value) => typeof value !== 'string')
/** Neither absent nor an object that could do. */
export const wrongOptions = fc.oneof(
  fc.constantFrom(null, 1, 'x', true, Symbol('x'), 1n),
  fc.record({ nope: fc.anything() }),
  fc.record({ signal: fc.anything().filter((value) => value !== undefined) }),
)

/** What a call throws or rejects with; `nothing` where it does neither. */
export async function thrownBy(call: () => unknown): Promise<unknown> {
  return await Promise.resolve()
    .then(call)
    .then(
      () => 'nothing',
      (error: unknown) => error,
    )
}

/** A fault of ours is none of the caller's. */
export function expectRefusal(thrown: unknown): void {
  expect(thrown).toBeInstanceOf(CaissonError)
  expect(hasCode(thrown, 'internal'), String(thrown)).toBe(false)
  expect(Object.keys(errorCodes)).toContain((thrown as CaissonError).code)
}
