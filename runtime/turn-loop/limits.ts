/** The limits of a turn loop: applies defaults for absent or unusable numbers; refuses values of a wrong type. */
import { CaissonError } from '#specs/errors.ts'
import { defaultGuardLimit } from './loop-guard.ts'

export const DEFAULT_TURN_LOOP_MAX_ITERATIONS = 24
export const DEFAULT_TURN_LOOP_MAX_CONSECUTIVE_TOOL_TURNS = 8
export const DEFAULT_TURN_LOOP_MAX_WALL_TIME_MS = 120_000
export const DEFAULT_TURN_LOOP_MAX_CONSECUTIVE_SAME_TOOL_CALL_BATCHES = defaultGuardLimit
const defaultInterruptGraceMs = 1_000

export interface TurnLoopLimits {
  readonly maxIterations: number
  readonly maxConsecutiveToolTurns: number
  readonly maxWallTimeMs: number
  readonly interruptGraceMs: number
  /** Null without a guard. */
  readonly maxConsecutiveSameBatches: number | null
  readonly emptyTextRetryLimit: number
  readonly rejectedTextRetryLimit: number
  readonly initialEmptyTextRetryCount: number
  readonly initialRejectedTextRetryCount: number
}

type Given = Readonly<Record<string, unknown>>

const neededFunctions = ['buildMessages', 'onTextResponse', 'onToolCallsResponse']
const optionalFunctions = [
  'callModel',
  'parsePlainTextToolIntent',
  'requiresActionEvidence',
  'classifyTextResponse',
  'onRejectedTextResponse',
  'onEmptyTextStop',
  'onUnhandledResponse',
  'onIterationStart',
  'onModelResponse',
  'onClassification',
  'onStop',
]

/** @throws {CaissonError} `invalid_options` when an option has a wrong type, or the loop cannot call a model */
export function readLimits(options: unknown): TurnLoopLimits {
  if (!isObject(options)) throw wrong('options', 'an object', options)
  for (const name of neededFunctions)
    if (typeof options[name] !== 'function') throw wrong(name, 'a function', options[name])
  for (const name of optionalFunctions)
    if (options[name] !== undefined && typeof options[name] !== 'function')
      throw wrong(name, 'a function or nothing', options[name])
  const { abortSignal } = options
  if (abortSignal !== undefined && !(abortSignal instanceof AbortSignal))
    throw wrong('abortSignal', 'an AbortSignal', abortSignal)
  return {
    maxIterations: readLimit(options, 'maxIterations', DEFAULT_TURN_LOOP_MAX_ITERATIONS),
    maxConsecutiveToolTurns: readLimit(
      options,
      'maxConsecutiveToolTurns',
      DEFAULT_TURN_LOOP_MAX_CONSECUTIVE_TOOL_TURNS,
    ),
    maxWallTimeMs: readLimit(options, 'maxWallTimeMs', DEFAULT_TURN_LOOP_MAX_WALL_TIME_MS),
    interruptGraceMs: readCount(options, 'interruptGraceMs', defaultInterruptGraceMs),
    maxConsecutiveSameBatches: readGuard(options.repeatedToolCallGuard),
    emptyTextRetryLimit: readCount(options, 'emptyTextRetryLimit', 0),
    rejectedTextRetryLimit: readCount(options, 'rejectedTextRetryLimit', 0),
    initialEmptyTextRetryCount: readCount(options, 'initialEmptyTextRetryCount', 0),
    initialRejectedTextRetryCount: readCount(options, 'initialRejectedTextRetryCount', 0),
  }
}

function readGuard(guard: unknown): number | null {
  if (guard === false) return null
  if (guard !== undefined && !isObject(guard))
    throw wrong('repeatedToolCallGuard', 'false or an object', guard)
  return readLimit(
    guard ?? {},
    'maxConsecutiveSameBatches',
    DEFAULT_TURN_LOOP_MAX_CONSECUTIVE_SAME_TOOL_CALL_BATCHES,
  )
}

/** At least 1. */
function readLimit(given: Given, name: string, fallback: number): number {
  const value = readNumber(given, name)
  return value !== undefined && Number.isFinite(value) && value > 0
    ? Math.max(1, Math.floor(value))
    : fallback
}

/** At least 0. */
function readCount(given: Given, name: string, fallback: number): number {
  const value = readNumber(given, name)
  return value !== undefined && Number.isFinite(value) && value >= 0 ? Math.floor(value) : fallback
}

function readNumber(given: Given, name: string): number | undefined {
  const value = given[name]
  if (value === undefined || typeof value === 'number') return value
  throw wrong(name, 'a number', value)
}

function isObject(value: unknown): value is Given {
  return typeof value === 'object' && value !== null
}

function wrong(name: string, expected: string, seen: unknown): CaissonError {
  const word = seen === null ? 'null' : typeof seen
  return new CaissonError('invalid_options', `runTurnLoop: ${name} must be ${expected}, and is ${word}`)
}
