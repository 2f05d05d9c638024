/** `caisson/testing`: a scripted model, to test tools and workflows without a real one. */
export { CaissonError, type CaissonErrorOptions, type ErrorCode, errorCodes } from '#specs/errors.ts'
export type { ModelError, ModelErrorCode } from '#specs/node/model-protocols/model-error.ts'
export type * from '../contract/contract.ts'
export type { TokenCount } from '../llm/exchange.ts'
export type { ToolCallFragment } from '../llm/tool-calls.ts'
export {
  calls,
  failure,
  type ReplyTerms,
  type ScriptedCall,
  type ScriptedFailure,
  type ScriptedReply,
  text,
} from './replies.ts'
export type { ScriptedRequest } from './request.ts'
export type {
  ReplyMaker,
  ReplyScript,
  RuleScript,
  ScriptedMatch,
  ScriptedRule,
} from './script.ts'
export {
  createScriptedModel,
  type ScriptedCallRequest,
  type ScriptedModel,
} from './scripted-model.ts'
