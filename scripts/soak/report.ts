/** The figures of a soak: what each cause led to, and whether the host process grows. */
import type { Measured, RunRecord } from './lane.ts'

interface CauseFigures {
  readonly runs: number
  /** Runs that were still at work when it came. */
  readonly struck: number
  readonly whole: number
  readonly recoveries: number
  readonly recoveryMsP50: number | null
  readonly recoveryMsMost: number | null
}

export function describeCauses(records: readonly RunRecord[]): Readonly<Record<string, CauseFigures>> {
  const groups = Map.groupBy(records, ({ cause }) => cause)
  return Object.fromEntries(
    [...groups].toSorted().map(([cause, group]) => {
      const times = group.flatMap(({ recoveryMs }) => recoveryMs).toSorted((a, b) => a - b)
      return [
        cause,
        {
          runs: group.length,
          struck: group.filter(({ struck }) => struck).length,
          whole: group.filter(({ breaches }) => breaches.length === 0).length,
          recoveries: times.length,
          recoveryMsP50: times[Math.floor(times.length / 2)] ?? null,
          recoveryMsMost: times.at(-1) ?? null,
        },
      ]
    }),
  )
}

/** The part of the measurements that does not count: what is loaded late, and kept once, is there by then. */
const warmUpShare = 0.4
/** Measurements below which a slope says nothing. */
const leastCount = 15
const heapSlopeMaxKib = 64
const descriptorsMaxGrowth = 4

interface Slopes {
  readonly measurements: number
  readonly heapKibPerRun: number | null
  /** Of the last measurement. */
  readonly heapKib: number | null
  readonly rssKibPerRun: number | null
  readonly descriptorsFirst: number | null
  readonly descriptorsLast: number | null
}

export function findSlopes(measured: readonly Measured[]): Slopes {
  const warm = measured.slice(Math.ceil(measured.length * warmUpShare))
  const last = warm.at(-1)
  return {
    measurements: warm.length,
    heapKibPerRun: slopeOf(warm.map(({ heapBytes }) => heapBytes / 1024)),
    heapKib: last === undefined ? null : Math.round(last.heapBytes / 1024),
    rssKibPerRun: slopeOf(warm.map(({ rssBytes }) => rssBytes / 1024)),
    descriptorsFirst: warm[0]?.descriptors ?? null,
    descriptorsLast: last?.descriptors ?? null,
  }
}

export function findSteadyBreaches(measured: readonly Measured[]): string[] {
  const { measurements, heapKibPerRun, descriptorsFirst, descriptorsLast } = findSlopes(measured)
  const growth = (descriptorsLast ?? 0) - (descriptorsFirst ?? 0)
  const isGrowing = measurements >= leastCount && (heapKibPerRun ?? 0) > heapSlopeMaxKib
  return [
    ...(growth > descriptorsMaxGrowth ? [`the host process has ${growth} more descriptors`] : []),
    ...(isGrowing ? [`the heap of the host process grows by ${heapKibPerRun} KiB each run`] : []),
  ]
}

/** Of the line that fits best (least squares); rounded to tenths. */
function slopeOf(values: readonly number[]): number | null {
  if (values.length < 2) return null
  const middle = (values.length - 1) / 2
  const mean = values.reduce((sum, value) => sum + value, 0) / values.length
  const over = values.reduce((sum, value, index) => sum + (index - middle) * (value - mean), 0)
  const under = values.reduce((sum, _, index) => sum + (index - middle) ** 2, 0)
  return Math.round((over / under) * 10) / 10
}
