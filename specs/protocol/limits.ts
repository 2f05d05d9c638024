/** Every bound that both sides enforce on what the other one sends. A value beyond its bound is refused, never cut in silence. */

const KiB = 1024
const MiB = 1024 * KiB

export const limits = {
  /** Largest JSON payload of one frame on the control port, in bytes. */
  frameMaxBytes: MiB,
  /** Deepest nesting of objects and arrays in one message. */
  jsonMaxDepth: 24,
  /** Messages that one side may have sent and not had handled, before the session ends. */
  pendingMaxRequests: 256,
  /** Events that the guest keeps until the host has them; at the bound the agent waits. */
  eventBufferMaxCount: 512,
  /** Events in one `event/emit`. */
  eventBatchMaxCount: 64,
  /** Messages per second from the guest, averaged over ten seconds, before the session ends. */
  guestMaxMessagesPerSecond: 2_000,
  /** Events of one run, host's and agent's together. */
  runMaxEvents: 200_000,
  /** Bytes of one run's journal. */
  runMaxJournalBytes: 256 * MiB,
  /** Of these events, those that a guest cannot use up: they are kept for the end of the run, its apply and its undo. */
  runReservedEvents: 2_000,
  /** The same of the bytes. */
  runReservedJournalBytes: 32 * MiB,
  /** Log lines from the guest that one run keeps, in bytes. */
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

  planMaxSteps: 64,
  /** Plans of one run, the first included. */
  planMaxRevisions: 32,
  stepMaxNeeds: 32,
  stepMaxWrites: 64,
  stepMaxRetries: 5,
  /** Messages of a person to a running agent that may wait to be seen. */
  steerMaxPending: 32,
  /** Questions of `ask_user` that a person is asked in one run, its sub-agents' included. */
  runMaxQuestions: 32,
  /** Files, directories and links that go into a VM. */
  workspaceMaxEntries: 500_000,
  /** Entries of one change set. */
  changeMaxEntries: 250_000,
  /** Directories within directories in a change set; what lies deeper cannot come home. */
  changeMaxDepth: 256,
  /** One header frame of the change stream, in bytes. */
  changeHeaderMaxBytes: 64 * KiB,
  /** Content of one change set, in bytes, unless the host's user raises it. */
  changeMaxContentBytes: 8 * 1024 * MiB,

  /** Silence on the control port after which a session is ended, in milliseconds. */
  heartbeatIntervalMs: 2_000,
  heartbeatTimeoutMs: 15_000,
} as const
