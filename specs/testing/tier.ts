/**
 * What a test does more of in the slow tier: `vitest.config.ts` runs the files that import this there too. On a slow machine
 * `scripts/test.ts` gives them the fast tier's values there as well.
 */

/** The first of two values in the fast tier, the second in the slow one. */
export function perTier<T>(fast: T, slow: T): T {
  return process.env.CAISSON_TEST_TIER === 'slow' ? slow : fast
}
