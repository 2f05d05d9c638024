/** What a run is told before it starts; decided once, never changed. */
import type { ApprovalRule } from '#specs/protocol/approval.ts'
import type { Result } from '#specs/protocol/error.ts'
import type { McpServer, MemoryNote } from '#specs/protocol/extension.ts'
import type { RunLimits } from '#specs/protocol/task.ts'
import type { ApprovalMode } from '../approvals/queue.ts'
import type { Config } from '../config/schema.ts'
import type { Policy } from '../egress/policy.ts'
import type { Hook } from '../hooks/hook.ts'
import type { Image } from '../image/image.ts'
import type { KeySource } from '../keys/key-source.ts'
import type { Secret } from '../keys/secret.ts'
import type { McpPins } from '../mcp/pins.ts'
import type { NoteStore } from '../memory/note-store.ts'
import type { Network } from '../net/network.ts'
import type { Provider } from '../providers/providers.ts'
import type { Recording } from '../recording/replay.ts'
import type { Secrets } from '../secrets/secrets.ts'
import type { UserSkills } from '../skills/user-skills.ts'
import type { Folders } from '../state/folders.ts'
import type { PreparedTool } from '../tools/host-tools.ts'
import type { Accelerator } from '../vm/qemu/qemu-args.ts'
import type { VmDiskImage } from '../vm/vm.ts'
import type { VmSize } from '../vm/vm-options.ts'
import type { VmPool } from '../vm/vm-pool.ts'
import type { ContinuedRun } from './continued-run.ts'
import type { GivenPlan } from './given-plan.ts'

/** Everything a run needs to know; all of it decided before it starts. */
export interface ResolvedRun {
  readonly runId: string
  readonly folders: Folders
  readonly image: Image
  /** The user's configuration as it was when the run began. */
  readonly config: Config
  /** How the host reaches the internet for it. */
  readonly network: Network
  /** What may leave the VM beside the model. */
  readonly egress: Policy
  /** The user's secrets for requests of the guest. */
  readonly secrets: Secrets
  /** Reads a key from where the configuration says it is. */
  readonly resolveKey: (source: KeySource) => Promise<Result<Secret, string>>
  readonly provider: Provider
  /** Who makes vectors of texts; absent: nobody. */
  readonly embeddings?: Provider
  /** Answers in the place of the model's server and the web; nothing goes to a network then. */
  readonly recording?: Recording
  readonly prompt: string
  /** `plan`: the workspace is read-only, programs have no way out, and the run ends with its plan. */
  readonly mode: 'work' | 'plan'
  /** Whether a plan, and each revision of it, is carried out only when it was allowed. */
  readonly approvePlan: boolean
  /** The plan to carry out, and where it is from; absent: the model makes one. */
  readonly given?: GivenPlan
  /** Tokens of the model's window, where the configuration says so. */
  readonly contextTokens?: number
  readonly context?: Readonly<Record<string, string>>
  /** The run that this one continues: its VM is taken if it was kept. */
  readonly continues?: ContinuedRun
  /** Whether the VM is saved at the end for a run that continues this one. */
  readonly keep: boolean
  /** The notes that it may read and propose to add to, and what it is told of them; absent: it has no memory. */
  readonly memory?: { readonly store: NoteStore; readonly told: readonly MemoryNote[] }
  /** The user's skills; absent: none. */
  readonly skills?: UserSkills
  /** The user's MCP servers, and what was allowed of servers before; absent: no server is. */
  readonly mcp?: { readonly servers: Readonly<Record<string, McpServer>>; readonly pins: McpPins }
  /** The workspace on the host. */
  readonly directory: string
  /** Ignored or secret paths that go in all the same. */
  readonly include: readonly string[]
  /** Whether the ignore rules are accepted as earlier runs left them. */
  readonly acceptIgnoreRules?: boolean
  /** Names and patterns; absent: all. */
  readonly tools?: readonly string[]
  /** Tools of the application, by name; absent: none. */
  readonly hostTools?: ReadonlyMap<string, PreparedTool>
  /** In the order in which they are asked; absent: none. */
  readonly hooks?: readonly Hook[]
  readonly limits: RunLimits
  readonly vm: Partial<VmSize> & {
    /** A bootable disk in the place of kernel, initramfs and root, such as Packer makes. */
    readonly disk?: VmDiskImage
    readonly accelerator?: Accelerator | 'auto'
    readonly confine?: 'auto' | 'require'
    /** `cold` boots the VM; `auto` (the default) copies a template, and boots where that cannot be. */
    readonly start?: 'auto' | 'cold'
    /** How long a person is waited for before the VM is saved to disk until the answer; default 5 min, 0 for never. */
    readonly hibernateAfterMs?: number
  }
  /** VMs that wait for a run like this; absent: one is started. */
  readonly pool?: VmPool
  readonly approvals: {
    readonly mode: ApprovalMode
    readonly rules: readonly ApprovalRule[]
    readonly interactive: boolean
  }
}
