/**
 * The contract of extensions: tools that a task adds, such as those of the host application and of MCP servers. A run
 * opens each extension once, before planning; its tools are created for the run's workspace and for each sub-agent's
 * view.
 */
import type { Logger } from 'pino'
import type { Task } from '#specs/protocol/task.ts'
import type { CodeFunction } from '#specs/protocol/workflow.ts'
import type { HostRequests } from '../link/host-link.ts'
import type { Tool } from '../tool-calls/tool.ts'

/** The workspace of one agent, for programs and for file access. */
export interface AgentWorkspace {
  /** `root`, or `root/NAME` of a sub-agent. */
  readonly agentPath: string
  /** Path of its tree in the guest. */
  readonly root: string
  /** The view for programs; absent: the workspace itself. */
  readonly view?: string
}

/** Requests to the host that an extension may make. */
export interface ExtensionHost extends HostRequests {
  /** Reports a line to the person, such as a server that did not start. */
  note(level: 'info' | 'warn', text: string): Promise<void>
}

export interface ExtensionParts {
  readonly task: Task
  readonly host: ExtensionHost
  /** Reserved names: those of the agent's own tools and of earlier extensions. */
  readonly taken: ReadonlySet<string>
  /** Aborted when the run ends. */
  readonly signal: AbortSignal
  readonly logger: Logger
}

/** An extension of one run. */
export interface Extension {
  /**
   * The tools for an agent over its workspace; the same sorted names for each. Whatever they start for this agent
   * ends with `signal`.
   */
  toolsFor(workspace: AgentWorkspace, signal: AbortSignal): Promise<readonly Tool[]>
  /** The tool for a function with code that a step of a workflow adds, over the root's workspace. Absent: it makes none. */
  toolOf?(added: CodeFunction): Tool
  /** Ends what it started. */
  close(): Promise<void>
}

/**
 * Opens an extension; null when the task does not use it. A failing server or application is a note, not a rejection.
 */
export type OpenExtension = (parts: ExtensionParts) => Promise<Extension | null>
