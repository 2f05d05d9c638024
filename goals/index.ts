/** `caisson/agent`: one goal, one answer, without HTTP; in a VM or without one. */
export { type HostTools, OptionsError, type TaskAnswer, type TraceEntry } from '../host/index.ts'
export { Agent } from './agent.ts'
export type {
  AgentApproval,
  AgentOptions,
  AgentResult,
  GoalOptions,
  OneGoalOptions,
} from './options.ts'
