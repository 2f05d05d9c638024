/** The library: start runs, watch them, answer their approvals, bring their changes home. */
export { CaissonError, type CaissonErrorOptions, type ErrorCode, errorCodes } from '#specs/errors.ts'
export type { ServerKindName } from '#specs/node/model-protocols/server-kinds.ts'
export type { SkillFinding } from '#specs/node/skills/registry.ts'
export type {
  Edge as WorkflowEdge,
  TakenFunction as TakenWorkflowFunction,
  WorkflowFunction,
  WorkflowStep,
  WorkspaceData,
} from '#specs/node/workflow/workspace-data.ts'
export type {
  AccessQuestion,
  AnsweredVia,
  AnswerReach,
  ApprovalRequest,
  ApprovalRule,
  ApprovalScope,
  OfferedAnswer,
} from '#specs/protocol/approval.ts'
export type { SectionPlace } from '#specs/protocol/context-section.ts'
export type { AccessReach, EgressRule } from '#specs/protocol/egress.ts'
export type { RunReason, ToolError, ToolErrorCode } from '#specs/protocol/error.ts'
export type { AgentEvent, Delta, HostEvent, JournalEvent, LeftOut } from '#specs/protocol/event.ts'
export type {
  GovernanceNote,
  MemoryNote,
  SkillHead,
  SkillLoadAnswer,
} from '#specs/protocol/extension.ts'
export type { FileContent } from '#specs/protocol/file-contents.ts'
export type { HookPoint } from '#specs/protocol/hook.ts'
export type { HostDelta, RunPriority } from '#specs/protocol/host-event.ts'
export type { ImageRef } from '#specs/protocol/image.ts'
export type { ShellOptions } from '#specs/protocol/methods.ts'
export type { RequestSource } from '#specs/protocol/model-request.ts'
export type { Effort, OutputSchema, Plan, PlanInput, Step, StepState } from '#specs/protocol/plan.ts'
export { isAnswerTo, type UserAnswer, type UserQuestion } from '#specs/protocol/question.ts'
export type { StepModels } from '#specs/protocol/run-models.ts'
export {
  type CheckpointMoment,
  initialRunState,
  type QueuedRun,
  type RunAnswer,
  type RunLine,
  type RunMoment,
  type RunState,
  reduceRun,
} from '#specs/protocol/run-state.ts'
export { RunLimits, type RunOutcome, type Usage } from '#specs/protocol/task.ts'
export {
  parseToolValidationFailureArtifact,
  type ToolValidationFailure,
  type ToolValidationIssue,
} from '#specs/protocol/validation-failure.ts'
export type {
  FunctionDetails,
  StepDetails,
  StepWorkName,
  TakenFunctionDetails,
  WorkflowAddition,
} from '#specs/protocol/workflow-format.ts'
export type { TaskAnswer, TraceEntry } from '#specs/service/task-resources.ts'
export type { WebhookEvent } from '#specs/service/webhook-resources.ts'
export type {
  ApiKey,
  ApiKeyOptions,
  ApiKeyQuotas,
  ApiKeyStore,
  ApiKeys,
  CreatedApiKey,
  StoredKeys,
} from './api-keys/api-keys.ts'
export type { AnswerResult, ApprovalAnswer, ApprovalMode } from './approvals/queue.ts'
export type { UnpackedWorkspace, UnpackWorkspaceOptions } from './archive/unpack-workspace.ts'
export type { Blame, BlamedLine, BlameOptions, LineOrigin } from './blame/blame.ts'
export type { BlamedApproval, BlamedCall, BlamedTurn } from './blame/call-details.ts'
export { OptionsError } from './check-options.ts'
export type { ComparedChange, ComparedPath, ComparedRun, RunComparison } from './compare/compare-runs.ts'
export type { MergeConflict, Take } from './compare/merge-runs.ts'
export type { MergedRuns, MergeOptions } from './compare/merged-run.ts'
export type { Config, ConfigInput, PriceConfig } from './config/schema.ts'
export type { ContextOption, ContextSection, ContextText, TurnContextOption } from './context-options.ts'
export type { CopyOptions, CopyResult } from './control/copy.ts'
export type { VmDetails, VmInfo, VmUsage } from './control/messages.ts'
export type { RunClient, WatchEnd } from './control/run-client.ts'
export type {
  AnswerActor,
  CancelAgentOptions,
  CancelOptions,
  RunActor,
  RunForks,
  RunHandle,
  RunResult,
  SteerOptions,
} from './control/run-handle.ts'
export type { Shell, ShellEnd } from './control/shell.ts'
export type { Forwarding, ForwardOptions, VmClient } from './control/vm-client.ts'
export type { VmDirectory, VmEntry } from './control/vms.ts'
export type { Finding } from './doctor/doctor.ts'
export type { PersistentGrant, PersistentGrants } from './egress/persistent-grants.ts'
export type { EgressPolicy } from './egress/policy.ts'
export type { HostPattern, PolicyRule } from './egress/rules.ts'
export type { ExportOptions } from './export-run.ts'
export { type FleetAddress, type FleetAddressSource, readFleetAddress } from './fleet/address.ts'
export type { CallerUse } from './fleet/caller-use.ts'
export type { FleetStatus } from './fleet/fleet.ts'
export type { FleetHost } from './fleet/host-table.ts'
export type { WaitingBounds } from './fleet/lanes.ts'
export type { Fault, HostFacts, Requires } from './fleet/placement.ts'
export type { SubmissionKey, SubmittedBefore } from './fleet/run-requests.ts'
export type { FleetPlace, FleetSignals } from './fleet/waits.ts'
export {
  FleetMember,
  type FleetMemberOptions,
  type FleetSubmission,
  type SubmittedSegment,
} from './fleet-member.ts'
export type { SubmittedAbout } from './fleet-runs/end.ts'
export type { CarriedRun, Segment } from './fleet-runs/fleet-runs.ts'
export type { RunElsewhere, RunFences } from './fleet-runs/run-fences.ts'
export type { ForkOptions, RewindOptions } from './fork-runs.ts'
export type { ForkRequest, Forks } from './forks/fork-run.ts'
export type { Rewound } from './forks/rewind.ts'
export type { CodeHook, CodeHookAt, CodeVerdict } from './hooks/code-hook.ts'
export type {
  HookedCall,
  HookInput,
  HookSubjects,
  HookVerdict,
} from './hooks/hook.ts'
export {
  Host,
  type HostOptions,
  type HostPoolOptions,
  type HostQueueOptions,
  type ResumeOptions,
  type RunOptions,
  type SandboxOptions,
  type TestedRun,
  type WorkflowOptions,
} from './host.ts'
export type { Image } from './image/image.ts'
export { ImageError, type ImageErrorKind } from './image/image-error.ts'
export type { ImportOptions, ImportResult } from './import-run.ts'
export { type ChainedLine, type FencedLine, type JournalFence, readJournal } from './journal/journal.ts'
export type { JournalPoint } from './journal/journal-lines.ts'
export type { JournalReading } from './journal/journal-summary.ts'
export type { FeedItem, WatchOptions } from './journal/run-feed.ts'
export type { RunOutline } from './journal/run-outline.ts'
export type { EnterFence } from './journal/run-paths.ts'
export type { ApprovalBounds, RunFilter, RunPage, RunQuery, RunStatus } from './journal/run-query.ts'
export type { RunSource, SharedRunQuery } from './journal/run-source.ts'
export { type RunApproval, type RunPaths, RunStore, type RunSummary } from './journal/run-store.ts'
export type { RunHost, SharedRun } from './journal/shared-run.ts'
export type { JwtOptions, JwtRefusal, JwtSubject, JwtVerdict, JwtVerifier } from './jwt/jwt.ts'
export type { KeySource } from './keys/key-source.ts'
export { LockHeldError } from './locks/file-lock.ts'
export type { McpPin, McpPins } from './mcp/pins.ts'
export type { DamagedLine } from './memory/note-file.ts'
export type { NoteStorage, ProposalNote, StoredNote, WorkspaceNote } from './memory/note-storage.ts'
export { createMemoryNotes, SqliteNotes } from './memory/note-storages.ts'
export type { NoteStore } from './memory/note-store.ts'
export type { DesktopMessage } from './notify/desktop.ts'
export type {
  Messenger,
  PushMessage,
  PushSender,
  PushTarget,
  WebhookMessage,
  WebhookReceiver,
} from './notify/messenger.ts'
export type { SendResult } from './notify/post.ts'
export type { PushKeys } from './notify/web-push.ts'
export type { ProviderChoice } from './providers/providers.ts'
export type { HostQueue, QueueCounts, QueueLimits, QueuePlace } from './queue/run-queue.ts'
export type { RunImage } from './recording/recorded-image.ts'
export type { ReplayOptions } from './replay-run.ts'
export type { RunObserver } from './run-observers.ts'
export type {
  ApprovalOptions,
  EgressOptions,
  FileSelection,
  PlanOptions,
  RunExtensions,
  RunQueueOptions,
} from './run-options.ts'
export type { AddedFolder } from './runs/added-folders.ts'
export type {
  ApprovalReply,
  OnApproval,
  PendingApproval,
} from './runs/approval-handler.ts'
export type {
  FileVersion,
  InspectedChanges,
  PathVersions,
  ReviewedChange,
  RunChanges,
} from './runs/changes.ts'
export type { HeldPaths, PathFate } from './runs/prepare.ts'
export type { Replay, ReplayDifference, ReplayResult } from './runs/replay/replay.ts'
export type { Run } from './runs/run.ts'
export type { DecidedNotes, NoteDecision, ProposedNote, RunNotes, SettledNote } from './runs/run-notes.ts'
export { toTaskAnswer } from './runs/task-answer.ts'
export type { ChangeOptions } from './runs/undo-run.ts'
export type { ExecOptions, ExecResult } from './sandbox/guest-command.ts'
export type { FileOptions, ReadFileOptions, SandboxFile } from './sandbox/guest-files.ts'
export type { ForwardedPort, PortOptions, Sandbox, SandboxVm } from './sandbox/sandbox.ts'
export type { SecretChanges, SecretSetting } from './secrets/secrets.ts'
export type { UserSkills } from './skills/user-skills.ts'
export { type WorkflowFunctions, workflowTools } from './start-workflow.ts'
export type { Folders } from './state/folders.ts'
export {
  defineHostTool,
  type HostToolContext,
  type HostToolDefinition,
  HostToolError,
  type HostToolErrorOptions,
  type HostToolInput,
  type HostToolSchema,
  type HostTools,
} from './tools/host-tools.ts'
export { type LeftOutTool, type LoadedTools, type LoadToolsOptions, loadTools } from './tools/load-tools.ts'
export type { ToolChoice } from './tools/tool-list.ts'
export type { VmDiskImage } from './vm/drives.ts'
export type { Accelerator } from './vm/qemu/qemu-args.ts'
export type { VmTemplate } from './vm/template/template-store.ts'
export { VmError, type VmErrorDetails, type VmErrorKind, type VmPhase } from './vm/vm-error.ts'
export type { RunVmOptions, VmOptions } from './vm/vm-options.ts'
export type { VmPoolOptions } from './vm/vm-pool.ts'
export { drawMermaid, drawSvg } from './workflows/draw.ts'
export { FolderWorkflowStore } from './workflows/folder-store.ts'
export type { WorkflowProblem } from './workflows/read-workspace.ts'
export { SqliteWorkflowStore } from './workflows/sqlite-store.ts'
export type { StoredWorkflow, WorkflowStore } from './workflows/workflow-store.ts'
export {
  type ListedWorkflow,
  WorkflowError,
  WorkspaceManager,
  type WorkspaceManagerOptions,
} from './workflows/workspace-manager.ts'
export type { ConflictState } from './workspace/conflicts.ts'
export type {
  AppliedPart,
  ApplySummary,
  ChangeSelection,
  Hunk,
  HunkSelection,
  ReviewItem,
  UndoSummary,
  WorkspaceError,
  WorkspaceErrorCode,
} from './workspace/index.ts'
export { isLikelySecret } from './workspace/index.ts'
