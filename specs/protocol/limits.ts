/**
 * All limits that both sides enforce on input from the other. A value over its limit is refused, never truncated
 * silently.
 */

const KiB = 1024
const MiB = 1024 * KiB

export const limits = {
  /** Maximum JSON payload of one frame on the control port, in bytes. */
  frameMaxBytes: MiB,
  /** Maximum nesting of objects and arrays in one message. */
  jsonMaxDepth: 24,
  /** Maximum unhandled messages of one side before the session ends. */
  pendingMaxRequests: 256,
  /** Maximum events that the guest keeps unacknowledged; at the limit the agent waits. */
  eventBufferMaxCount: 512,
  /** Maximum events in one `event/emit`. */
  eventBatchMaxCount: 64,
  /** Maximum messages per second from the guest, averaged over ten seconds, before the session ends. */
  guestMaxMessagesPerSecond: 2_000,
  /** Maximum events of one run, host's and agent's together. */
  runMaxEvents: 200_000,
  /** Maximum bytes of one run's journal. */
  runMaxJournalBytes: 256 * MiB,
  /** Events reserved for the end of the run, its apply and its undo, which a guest cannot use up. */
  runReservedEvents: 2_000,
  /** Journal bytes reserved in the same way. */
  runReservedJournalBytes: 32 * MiB,
  /** Maximum log bytes from the guest kept per run. */
  runMaxLogBytes: 16 * MiB,

  /** A path below the workspace, in UTF-8 bytes (Linux PATH_MAX less its NUL). */
  pathMaxBytes: 4095,
  /** One name in a path, in UTF-8 bytes (Linux NAME_MAX). */
  nameMaxBytes: 255,
  /** A one-line text: titles, reasons, names. */
  lineMaxChars: 500,
  /** A paragraph: summaries, previews, error messages, hints. */
  textMaxChars: 16 * KiB,
  /** A document: the task's prompt, a model's answer, one tool call's arguments as JSON. */
  documentMaxChars: 256 * KiB,

  /** Maximum characters, as JSON, of the schema of a run's final answer. */
  outputSchemaMaxChars: 64 * KiB,
  /** Maximum nesting of that schema; it travels within a message. */
  outputSchemaMaxDepth: 16,
  planMaxSteps: 64,
  /** Maximum plans of one run, including the first. */
  planMaxRevisions: 32,
  stepMaxNeeds: 32,
  stepMaxWrites: 64,
  stepMaxRetries: 5,
  /** An expression of a workflow. */
  expressionMaxChars: 2_000,
  /** Maximum characters, as JSON, of what a step adds to its workflow at once. */
  additionMaxChars: 64 * KiB,
  /** Maximum nesting of that. */
  additionMaxDepth: 16,
  /** Maximum unseen messages of a person to a running agent. */
  steerMaxPending: 32,
  /** Maximum questions of `ask_user` to a person in one run, including its sub-agents. */
  runMaxQuestions: 32,
  /** Maximum runs that one fork makes. */
  forksMaxCount: 16,
  /** Maximum files, directories and links copied into a VM. */
  workspaceMaxEntries: 500_000,
  /** Maximum entries of one change set. */
  changeMaxEntries: 250_000,
  /** Maximum directory depth in a change set; deeper entries cannot be transferred. */
  changeMaxDepth: 256,
  /** Maximum bytes of one header frame in the change stream. */
  changeHeaderMaxBytes: 64 * KiB,
  /** Maximum content bytes of one change set, unless the host's user raises it. */
  changeMaxContentBytes: 8 * 1024 * MiB,

  /** Silence on the control port after which a session is ended, in milliseconds. */
  heartbeatIntervalMs: 2_000,
  heartbeatTimeoutMs: 15_000,
} as const
