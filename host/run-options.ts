/** What a program may say of a run; what becomes of it is in host.ts. */
import type { ApprovalRule } from '#specs/protocol/approval.ts'
import type { EgressRule } from '#specs/protocol/egress.ts'
import type { PlanInput } from '#specs/protocol/plan.ts'
import type { RunLimits } from '#specs/protocol/task.ts'
import type { ApprovalMode } from './approvals/queue.ts'
import type { CodeHook } from './hooks/code-hook.ts'
import type { OnApproval } from './runs/approval-handler.ts'
import type { HostTools } from './tools/host-tools.ts'
import type { ToolChoice } from './tools/tool-list.ts'
import type { Accelerator } from './vm/qemu/qemu-args.ts'
import type { VmDiskImage } from './vm/vm.ts'
import type { VmSize } from './vm/vm-options.ts'

/**
 * What a run may be told; everything but `prompt` has a default. {@link checkRunOptions} checks all of it
 * before anything starts.
 */
export interface RunOptions {
  /** What the agent is to do; with a plan it may be empty, and is then what the plan was made for. */
  readonly prompt: string
  /**
   * `plan`: the agent looks around in a workspace that nothing in the VM can change, and the run ends with its plan; what
   * programs send has no way out. Default `work`.
   */
  readonly mode?: 'work' | 'plan'
  /**
   * Whether the plan, and each revision of it, waits for an answer before it is carried out; as for other
   * questions, `approve` and `rules` may give it. Default false.
   */
  readonly approvePlan?: boolean
  /** The plan to carry out, in the place of one that the model makes. */
  readonly plan?: PlanInput
  /** The same, of an earlier run (its id, a beginning of it, `last`) or from a file with a plan as JSON. */
  readonly planFrom?: string
  /** Further facts for the model, by name. */
  readonly context?: Readonly<Record<string, string>>
  /** The directory to work on; absent: the current one. */
  readonly workspace?: string
  /** Patterns of ignored or secret paths that go in all the same. */
  readonly include?: readonly string[]
  /** Accepts the ignore rules as earlier runs left them; else what such a run let in stays out. Default false. */
  readonly acceptIgnoreRules?: boolean
  /** Model id; absent: `CAISSON_MODEL` or the provider's default. */
  readonly model?: string
  /** Tools that the run may use; absent: all. */
  readonly tools?: ToolChoice
  /** Tools of the application's own, by name, which run on the host, not in the VM. */
  readonly hostTools?: HostTools
  /**
   * MCP servers for this run beside those of the configuration, in the usual form; see `specs/mcp.md`. One of
   * the same name goes before it.
   */
  readonly mcpServers?: Readonly<Record<string, unknown>>
  /** Functions that are asked at points of the run, after the commands of the configuration. */
  readonly hooks?: readonly CodeHook[]
  readonly limits?: Partial<RunLimits>
  readonly vm?: Partial<VmSize> & {
    /** A bootable disk in the place of the image's kernel and root, such as `npm run image:disk` makes. */
    readonly disk?: VmDiskImage
    readonly accelerator?: Accelerator | 'auto'
    readonly confine?: 'auto' | 'require'
    /** `cold` boots the VM; `auto` (the default) copies a template, and boots where that cannot be. */
    readonly start?: 'auto' | 'cold'
    /** How long a person is waited for before the VM is saved to disk until the answer; default 5 min, 0 for never. */
    readonly hibernateAfterMs?: number
  }
  /**
   * What answers approvals that no rule does: `ask` waits for {@link Run.answer} where `interactive`, else
   * denies. Default `ask`.
   */
  readonly approve?: ApprovalMode
  readonly approvalRules?: readonly ApprovalRule[]
  /** Answers the approvals of the run. Absent, with `interactive` absent: approvals are denied, with a warning. */
  readonly onApproval?: OnApproval
  /** Whether the application answers approvals with {@link Run.answer}. Default: whether `onApproval` is given. */
  readonly interactive?: boolean
  /** What may leave the VM beside the model, in this run alone; what the configuration denies or asks stays so. */
  readonly egress?: { readonly rules?: readonly EgressRule[] }
  /**
   * The run to continue: its id, a beginning of it, or `last` for the last one on this directory. The agent is told what
   * was done, and works on in its VM if that was kept, with the directory as it is now.
   */
  readonly continue?: string
  /** Whether the VM is saved at the end for a run that continues this one; default: whether this one continues another. */
  readonly keepVm?: boolean
  /** Told what goes on before the run has a journal, such as the building of the image. */
  readonly onProgress?: (text: string) => void
  /**
   * Told once the options are checked what a person should know of the model that is asked, such as that none is
   * configured. Absent: a Node warning, unless `onProgress` is given.
   */
  readonly onNotes?: (notes: readonly string[]) => void
  /**
   * Repeats a run without its model, the web or any network: a run by name, or the directory of one. What the recording
   * has no answer for fails.
   */
  readonly replay?: string
  /** Gives up before the run has started; afterwards use {@link Run.cancel}. */
  readonly signal?: AbortSignal
}
