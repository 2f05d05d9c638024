/** `caisson/testing`: a scripted model, to test tools and workflows without a real one. */
export type * from '../contract/contract.ts'
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
export {
  type ReplyMaker,
  type ReplyScript,
  type RuleScript,
  type ScriptedMatch,
  ScriptedModelError,
  type ScriptedRule,
} from './script.ts'
export {
  createScriptedModel,
  type ScriptedCallRequest,
  type ScriptedModel,
} from './scripted-model.ts'
