import { describe, it } from 'vitest'
import { perTier } from '#specs/testing/tier.ts'
import { drawFromClones } from './draws.ts'

/** Programs start anew in each copy, which emulation makes slow. */
const TIMEOUT_MS = 1_200_000

describe('copies of one template, in the slow tier', () => {
  it(
    'draw many values each in every way that a guest has, and again when saved and woken, none of them twice [V.03 V.04]',
    async () => {
      await drawFromClones({
        clones: perTier(3, 5),
        values: perTier(200, 1_000),
        valuesElsewhere: perTier(200, 1_000),
      })
    },
    TIMEOUT_MS,
  )
})
