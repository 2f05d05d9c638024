/** `caisson/runtime`: model calls and the turn loop as a library without a VM; the agent in the VM uses it. */

export { CaissonError, type CaissonErrorOptions, type ErrorCode, errorCodes } from '#specs/errors.ts'
export type { JsonSchema } from '#specs/node/json-schema.ts'
export type { ModelError, ModelErrorCode } from '#specs/node/model-protocols/model-error.ts'
export type { SkillFiles } from '#specs/node/skills/files.ts'
export {
  type LoadedSkill,
  type Skill,
  type SkillFinding,
  SkillRegistry,
  type SkillRegistryOptions,
} from '#specs/node/skills/registry.ts'
export type { UserAnswer } from '#specs/protocol/question.ts'
export {
  parseToolValidationFailureArtifact,
  type ToolValidationFailure,
} from '#specs/protocol/validation-failure.ts'
export { complete, streamComplete } from './complete/complete.ts'
export { DEFAULT_CONTROL_TOOL_RECOVERY_INSTRUCTION } from './complete/control-tools.ts'
export { createRuntime, type LLMRuntime, type RuntimeRequest } from './complete/runtime.ts'
export type * from './complete/types.ts'
export type { WebSearchFunction, WebSearchResult } from './complete/web-search.ts'
export type * from './contract/contract.ts'
export {
  type ConvenienceOptions,
  createLLMEnvironment,
  disposeLLMEnvironment,
  disposeLLMRuntimeCaches,
  getProviderStatus,
  type LLMDefaults,
  type LLMEnvironment,
  type LLMEnvironmentOptions,
  type LLMMcpRegistry,
  type LLMProviderStore,
  type LLMSkillRegistry,
} from './environment/environment.ts'
export {
  type ApplicationTools,
  defineTool,
  type ToolInput,
  type ToolSelection,
  type TypedTool,
} from './environment/tool-set.ts'
export { type ExecuteToolOptions, executeTool, type LLMToolResult } from './generate/execute-tool.ts'
export { generate, type LLMRequest, stream } from './generate/generate.ts'
export {
  LLMToolError,
  parseToolFailureArtifact,
  type ToolErrorMode,
  type ToolFailureArtifact,
  type ToolFailureCode,
} from './generate/tool-failure.ts'
export type { TokenCount } from './llm/exchange.ts'
export type { ToolCallFragment } from './llm/tool-calls.ts'
export { type McpConfig, type McpServerConfig, type McpTransport, parseMcpConfig } from './mcp/config.ts'
export type { McpState } from './mcp/connection.ts'
export type { McpToolInfo } from './mcp/lists.ts'
export { McpRegistry, type McpServerInfo, type McpTool } from './mcp/registry.ts'
export type { McpResult } from './mcp/result.ts'
export {
  type ProviderConfig,
  type ProviderConfigs,
  type ProviderKind,
  providerKinds,
} from './providers/config.ts'
export { LLMConfigurationError, LLMError } from './providers/errors.ts'
export { type OpenProvider, type ProviderStatus, ProviderStore } from './providers/store.ts'
export {
  generateStructured,
  LLMStructuredError,
  type StructuredOptions,
  type StructuredResult,
} from './structured/generate.ts'
export {
  createUserInputResult,
  type PendingUserInput,
  parsePendingUserInput,
  type UserInputQuestion,
} from './tools/ask-user-input.ts'
export { type PendingHumanRequest, parsePendingHumanRequest } from './tools/human-request.ts'
export { type BuiltInName, type BuiltInSelection, reservedToolNames } from './tools/selection.ts'
export type { WebFetchOptions } from './tools/web-fetch.ts'
export * from './turn-loop/index.ts'
