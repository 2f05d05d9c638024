/**
 * The options of a run: what an application types first, then groups by topic. `check-options.ts` refuses all
 * else.
 */
import type { ApprovalRule } from '#specs/protocol/approval.ts'
import type { EgressRule } from '#specs/protocol/egress.ts'
import type { FileContent } from '#specs/protocol/file-contents.ts'
import type { RunPriority } from '#specs/protocol/host-event.ts'
import type { Effort, PlanInput } from '#specs/protocol/plan.ts'
import type { StepModels } from '#specs/protocol/run-models.ts'
import type { RunLimits } from '#specs/protocol/task.ts'
import type { ApprovalMode } from './approvals/queue.ts'
import type { ContextOption, TurnContextOption } from './context-options.ts'
import type { CodeHook } from './hooks/code-hook.ts'
import type { AddedFolder } from './runs/added-folders.ts'
import type { OnApproval } from './runs/approval-handler.ts'
import type { HostTools } from './tools/host-tools.ts'
import type { ToolChoice } from './tools/tool-list.ts'
import {
  DEFAULT_DISK_BYTES,
  DEFAULT_HIBERNATE_AFTER_MS,
  DEFAULT_MEMORY_BYTES,
  DEFAULT_RECOVERIES,
  DEFAULT_SLEEP_AFTER_MS,
  type RunVmOptions,
} from './vm/vm-options.ts'

/** Defaults that do not depend on the machine, the configuration or another option. */
export const runDefaults = {
  context: {},
  folders: [],
  files: { include: [], acceptIgnoreRules: false },
  plan: { only: false, approve: false },
  approvals: { mode: 'ask', rules: [] },
  egress: { rules: [] },
  vm: {
    memoryBytes: DEFAULT_MEMORY_BYTES,
    diskBytes: DEFAULT_DISK_BYTES,
    accelerator: 'auto',
    confine: 'auto',
    start: 'auto',
    hibernateAfterMs: DEFAULT_HIBERNATE_AFTER_MS,
    sleepAfterMs: DEFAULT_SLEEP_AFTER_MS,
    recoveries: DEFAULT_RECOVERIES,
  },
  queue: { lane: '', priority: 'normal' },
  extensions: { hostTools: {}, mcpServers: {}, hooks: [] },
} as const satisfies Omit<RunOptions, 'prompt'>

/** Options of {@link Host.run}. Only `prompt` is required. All are checked before anything starts. */
export interface RunOptions {
  /**
   * The task for the agent. With `plan.from` it may be empty; the run then has the prompt that the plan was
   * made for.
   */
  readonly prompt: string
  /** The directory to work on. Default: the current directory. */
  readonly workspace?: string
  /** Model id. Default: `CAISSON_MODEL`, or the provider's default model. */
  readonly model?: string
  /**
   * How much the model reasons before it answers. Each model gets it in its own form, or not at all where it has none.
   * Default: the `effort` of the configuration, or what the model does by itself.
   */
  readonly effort?: Effort
  /**
   * Models that are asked in this order where the run's own cannot answer: it is down, overloaded, gone or limited for
   * hours. At most 8. Default: those of the configuration.
   */
  readonly fallback?: readonly string[]
  /**
   * Models that the agent may choose for a step of its plan or for a sub-agent, besides the run's own: ids, or names with
   * their ids. At most 8. Default: those of the configuration.
   */
  readonly stepModels?: StepModels
  /** The tools that the run may use: a list of names, or a map from names to true or false. Default: all. */
  readonly tools?: ToolChoice
  /**
   * Answers the approvals of the run. Without it and without `approvals`, approvals are denied with a warning.
   */
  readonly onApproval?: OnApproval
  /** Cancels the start. After the start use {@link Run.cancel}. */
  readonly signal?: AbortSignal
  /** Receives the progress of the image and the template while they are built; watchers get it as `prepare`. */
  readonly onProgress?: (text: string) => void
  /**
   * Receives notes about the model, such as that none is configured, and one when traces cannot be exported; that one
   * may come after the run. Default: a Node warning; of notes about the model only without `onProgress`.
   */
  readonly onNotes?: (notes: readonly string[]) => void
  /** Further facts for the model, by name: texts, or sections with a budget and a place. */
  readonly context?: ContextOption
  /**
   * Facts of the application about the run, such as its tenant or ticket, for its journal and for lists of runs. At most
   * 16 keys of 1 to 64 letters, digits, `.`, `_` and `-`; values of at most 500 characters. The agent does not get them.
   */
  readonly metadata?: Readonly<Record<string, string>>
  /**
   * The run to continue: its id, a prefix of it, or `last` for the last run on this directory. The agent learns what that
   * run did. It works in that run's VM if the VM was kept, on the directory as it is now.
   */
  readonly continue?: string
  /**
   * The run to repeat without its model, the web or any network: its id, a prefix of it, `last`, or a directory with a
   * recording. A request that the recording does not answer fails.
   */
  readonly replay?: string
  /**
   * A JSON schema (draft 2020-12) that the final answer fits: the result then has it as `value`, and the run fails when
   * the model never gives one. At most 64 KiB as JSON and 16 levels. Default: the answer is text.
   */
  readonly outputSchema?: Readonly<Record<string, unknown>>
  /**
   * Files of the workspace that the model sees with the task: PNG, JPEG, GIF or WebP, relative to the workspace or
   * absolute in it. At most 8 of 1 MiB each and 3 MiB together. They are copied into the VM also where they are ignored.
   * Default: none.
   */
  readonly images?: readonly string[]
  /**
   * Folders that the VM gets besides the workspace, each at `/mnt/folders/NAME`. They are read-only and no part of the
   * change set. At most 16. Default: none.
   */
  readonly folders?: readonly AddedFolder[]
  /**
   * Whether a run that goes to sleep leaves this process: {@link Run.ended} resolves with a state without an end, and
   * {@link Host.resume} continues the run after {@link Host.answer}, here or elsewhere. Default: false, this process
   * continues it.
   */
  readonly leaveOnSleep?: boolean
  /** Which files of the workspace the VM gets. */
  readonly files?: FileSelection
  /** Whether the run makes, executes or waits for a plan. */
  readonly plan?: PlanOptions
  /** What answers approvals. */
  readonly approvals?: ApprovalOptions
  /** What may leave the VM besides requests to the model. */
  readonly egress?: EgressOptions
  /** Limits of the run. Default: those of the configuration. */
  readonly limits?: Partial<RunLimits>
  /** Size, machine and life of the VM. */
  readonly vm?: RunVmOptions
  /** How the run waits where the host has a queue; see {@link HostOptions}. */
  readonly queue?: RunQueueOptions
  /** Tools, servers and hooks that the application adds. */
  readonly extensions?: RunExtensions
}

export interface RunQueueOptions {
  /** For whom the run is, up to 500 characters: lanes take turns, whoever has how many runs. Default: the same for all. */
  readonly lane?: string
  /** Runs of its lane at work at once; beyond it the run waits. Default: as many as the host lets work. */
  readonly laneMaxAtWork?: number
  /** Among the runs of its lane. Default: `normal`. */
  readonly priority?: RunPriority
  /** Time, ms, after which a run that has not begun ends with `queue_timeout`. Default: it waits without a limit. */
  readonly startWithinMs?: number
}

/** Options of {@link Host.resume}: what a run cannot be stored with. */
export interface ResumeOptions
  extends Pick<
    RunOptions,
    'onApproval' | 'signal' | 'onProgress' | 'onNotes' | 'extensions' | 'leaveOnSleep'
  > {
  /**
   * As in {@link ApprovalOptions}; `stored`: unless the run was started with false. Default: whether `onApproval` is
   * given.
   */
  readonly interactive?: boolean | 'stored'
  /**
   * Whether to end the process that has the run, with all other runs that it carries out; it may be stopped. Linux only.
   * Default: false.
   */
  readonly takeOver?: boolean
  /** Sections with `per: 'turn'`, whose functions cannot be stored; the others are in its task. Default: none. */
  readonly context?: TurnContextOption
  /** Whether to start again from the beginning, as is needed with another version of the agent. Default: false. */
  readonly fromBeginning?: boolean
  /**
   * Whether a run that was cancelled, and whose process ended before the run did, ends in order: its agent closes, and its
   * changes are collected. Otherwise the run continues its task. Default: whether a fleet has the run.
   */
  readonly endIfCancelled?: boolean
  /** Lower bounds of the whole run, with what it has used; higher ones change nothing. Default: as it was started. */
  readonly limits?: Partial<Pick<RunLimits, 'maxTokens' | 'maxCostUsd'>>
}

export interface FileSelection {
  /** Patterns of ignored or secret paths to copy anyway. Default: none. */
  readonly include?: readonly string[]
  /**
   * Whether to accept the ignore rules as earlier runs left them. Otherwise what such a run let in stays out.
   * Default: false.
   */
  readonly acceptIgnoreRules?: boolean
  /**
   * Content that the VM gets in the place of what the disk has, by path in the workspace: text, or bytes in base64. Such as
   * text that an editor has not saved. A path without a file makes one, in a directory that exists. Changes compare with
   * this content, so one is in conflict until the file on the disk has it. At most 64 files and 4 MiB. What stays out of
   * the VM stays out. Default: none.
   */
  readonly contents?: Readonly<Record<string, FileContent>>
}

export interface PlanOptions {
  /**
   * Whether the run ends with its plan. The workspace is then read-only, and programs have no network access.
   * Default: false.
   */
  readonly only?: boolean
  /**
   * The plan to execute instead of a plan by the model: a value, an earlier run (id, prefix or `last`), or a
   * JSON file. Default: the model makes it.
   */
  readonly from?: PlanInput | string
  /** Whether the plan and each revision need approval before they run. Default: false. */
  readonly approve?: boolean
}

export interface ApprovalOptions {
  /**
   * Answers approvals that no rule answers: `ask` waits for `onApproval` or {@link Run.answer}, and denies
   * where `interactive` is false. Default: `ask`.
   */
  readonly mode?: ApprovalMode
  /** Rules that answer approvals first. At most 1,000. Default: none. */
  readonly rules?: readonly ApprovalRule[]
  /**
   * Whether the application answers approvals with {@link Run.answer}. Default: whether `onApproval` is given.
   */
  readonly interactive?: boolean
}

export interface EgressOptions {
  /** Rules for this run. They cannot allow what the configuration denies or asks about. Default: none. */
  readonly rules?: readonly EgressRule[]
}

export interface RunExtensions {
  /** Tools of the application, by name. They run on the host, not in the VM. Default: none. */
  readonly hostTools?: HostTools
  /**
   * MCP servers, as in `mcp.json`. They replace servers of the configuration with the same name. Default:
   * none.
   */
  readonly mcpServers?: Readonly<Record<string, unknown>>
  /**
   * Functions that are called at points of the run, after the commands of the configuration. Default: none.
   */
  readonly hooks?: readonly CodeHook[]
}
