/** The turn loop's public part of the library. */
export {
  classifyText,
  DEFAULT_INTENT_ONLY_NARRATION_RECOVERY_INSTRUCTION,
  DEFAULT_NON_PROGRESSING_TEXT_RECOVERY_INSTRUCTION,
  DEFAULT_REPEATED_TOOL_CALL_RECOVERY_INSTRUCTION,
  DEFAULT_TOOL_VALIDATION_RECOVERY_INSTRUCTION,
  type TextAssessment,
  type TextClassification,
} from './classify.ts'
export {
  DEFAULT_TURN_LOOP_MAX_CONSECUTIVE_SAME_TOOL_CALL_BATCHES,
  DEFAULT_TURN_LOOP_MAX_CONSECUTIVE_TOOL_TURNS,
  DEFAULT_TURN_LOOP_MAX_ITERATIONS,
  DEFAULT_TURN_LOOP_MAX_WALL_TIME_MS,
} from './limits.ts'
export { type GuardedCall, LoopGuard } from './loop-guard.ts'
export { runTurnLoop, type TurnLoopModelRequest } from './run.ts'
export type * from './trace.ts'
export type * from './types.ts'
