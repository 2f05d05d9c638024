/**
 * What a task brings beside the tools that every agent has, such as tools of the host application and MCP servers. Opened once
 * for a run, before anything is planned; its tools are made for the run's own workspace and again for the view of each sub-agent.
 */
import type { Logger } from 'pino'
import type { ApprovalDecision, ApprovalRequest } from '#specs/protocol/approval.ts'
import type { HostToolCall, HostToolResult } from '#specs/protocol/extension.ts'
import type { HookDecision, HookRequest } from '#specs/protocol/hook.ts'
import type { Task } from '#specs/protocol/task.ts'
import type { Tool } from '../tool-calls/tool.ts'

/** The workspace of one agent as programs and files find it. */
export interface AgentWorkspace {
  /** `root`, or `root/NAME` of a sub-agent. */
  readonly agentPath: string
  /** Where its tree lies in the guest. */
  readonly root: string
  /** The view that programs are given; absent: the workspace itself. */
  readonly view?: string
}

/** What an extension may ask of the host; each waits until it has an answer, over as many sessions as that takes. */
export interface ExtensionHost {
  requestApproval(request: Omit<ApprovalRequest, 'runId'>, signal: AbortSignal): Promise<ApprovalDecision>
  runHook(request: Omit<HookRequest, 'runId'>, signal: AbortSignal): Promise<HookDecision>
  callTool(call: Omit<HostToolCall, 'runId'>, signal: AbortSignal): Promise<HostToolResult>
  /** A line for the person, such as a server that did not start. */
  note(level: 'info' | 'warn', text: string): Promise<void>
}

export interface ExtensionParts {
  readonly task: Task
  readonly host: ExtensionHost
  /** Names that are taken: those of the agent's own tools, and of extensions before this one. */
  readonly taken: ReadonlySet<string>
  /** Aborted when the run ends. */
  readonly signal: AbortSignal
  readonly logger: Logger
}

/** One for a run. */
export interface Extension {
  /**
   * The tools for an agent over its workspace; the same names, sorted, for each. What an agent started for itself ends with
   * `signal`.
   */
  toolsFor(workspace: AgentWorkspace, signal: AbortSignal): Promise<readonly Tool[]>
  /** Ends what it started. */
  close(): Promise<void>
}

/** Null where the task has nothing for it. Never rejects for what a server or an application did: that is a note. */
export type OpenExtension = (parts: ExtensionParts) => Promise<Extension | null>
