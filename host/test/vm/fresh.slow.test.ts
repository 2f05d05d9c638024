import { describe, it } from 'vitest'
import { drawFromClones } from '../support/draws.ts'

describe('twenty copies of one template', () => {
  it('draw a thousand values each in every way that a guest has, none of them twice [V.03]', async () => {
    await drawFromClones({ clones: 20, values: 1_000, valuesElsewhere: 1_000 })
  })
})
