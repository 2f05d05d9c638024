/** The agent's own tools of every run. Tools of the application and of MCP servers come as extensions. */
import type { Helper } from './link/root-helper.ts'
import type { ProgramNetwork } from './proxy/proxy.ts'
import type { createCodeSearch } from './search/code-search.ts'
import type { GatewayClient } from './tool-calls/gateway-client.ts'
import type { Tool } from './tool-calls/tool.ts'
import { createAskTool } from './tools/ask-user.ts'
import { type CodeToolsOptions, createCodeTools, createRunSandboxed } from './tools/code/code.ts'
import { createFileTools, type FileToolsOptions } from './tools/file-tools.ts'
import { createGovernanceTool } from './tools/governance.ts'
import { createLoadSkillTool } from './tools/load-skill.ts'
import { createMath } from './tools/math.ts'
import { createMemoryTools } from './tools/memory.ts'
import { createOutputTool } from './tools/read-output.ts'
import { createAccessTool } from './tools/request-access.ts'
import { createRevisePlanTool } from './tools/revise-plan.ts'
import { createAgentTools } from './tools/run-agents.ts'
import { createWebTools } from './tools/web.ts'

export interface OwnToolsParts {
  readonly helper: Helper
  readonly gateway: GatewayClient
  readonly codeSearch: Pick<ReturnType<typeof createCodeSearch>, 'toolOver'>
  /** Network access of programs; absent: none. */
  readonly network?: ProgramNetwork
}

export interface OwnTools {
  /** The tools of the run's first agent. */
  readonly tools: readonly Tool[]
  /** The tools of a sub-agent, over its view of the workspace. */
  toolsOver(files: FileToolsOptions, programs: CodeToolsOptions): Tool[]
}

/** @param files the workspace; absent: the guest's mount point */
export function createOwnTools(
  { helper, gateway, codeSearch, network }: OwnToolsParts,
  files: FileToolsOptions = {},
): OwnTools {
  const gatewayTools = [
    ...createWebTools(gateway),
    ...createMemoryTools(gateway),
    createGovernanceTool(gateway),
  ]
  const toolsOver: OwnTools['toolsOver'] = (over, programs) => [
    ...createFileTools(createRunSandboxed(helper, programs), over),
    ...createCodeTools(helper, { ...(network === undefined ? {} : { network }), ...programs }),
    codeSearch.toolOver(over),
    createAccessTool(),
    createAskTool(),
    createOutputTool(),
    createMath(),
    createLoadSkillTool({ gateway, helper, files: over, ...programs }),
    ...gatewayTools,
  ]
  return { tools: [...toolsOver(files, {}), createRevisePlanTool(), ...createAgentTools()], toolsOver }
}
