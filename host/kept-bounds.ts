/** The bounds of what is kept of runs, as the configuration has them. */
import type { Config } from './config/schema.ts'
import type { EndedRunBounds } from './fleet/upkeep.ts'
import { defaultMomentBounds, type MomentBounds } from './journal/kept-moments.ts'
import { defaultKeptBounds, type KeptBounds } from './runs/storage-bounds.ts'

export function keptBoundsOf({ kept }: Config): KeptBounds {
  const { maxRuns, maxBytes } = defaultKeptBounds
  return {
    maxRuns: kept.maxRuns ?? maxRuns,
    maxBytes: kept.maxGiB === undefined ? maxBytes : kept.maxGiB * 1024 ** 3,
  }
}

export function momentBoundsOf({ kept: { moments } }: Config): MomentBounds {
  const { maxRuns, maxBytes, maxAgeMs } = defaultMomentBounds
  return {
    maxRuns: moments.maxRuns ?? maxRuns,
    maxBytes: moments.maxGiB === undefined ? maxBytes : moments.maxGiB * 1024 ** 3,
    maxAgeMs: moments.maxDays === undefined ? maxAgeMs : moments.maxDays * 24 * 60 * 60 * 1000,
  }
}

export function fleetBoundsOf({ kept: { fleet } }: Config): EndedRunBounds {
  const { maxRuns, maxDays } = fleet
  return {
    ...(maxRuns === undefined ? {} : { maxRuns }),
    ...(maxDays === undefined ? {} : { maxAgeMs: maxDays * 24 * 60 * 60 * 1000 }),
  }
}
