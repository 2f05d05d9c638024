/** Runs over HTTP: their state, results and events, and what callers do with one. */
import * as z from 'zod'
import { Delta, HostDelta, JournalEvent } from '../protocol/event.ts'
import { RunMetadata, RunPriority } from '../protocol/host-event.ts'
import { limits } from '../protocol/limits.ts'
import { Usage } from '../protocol/task.ts'
import { AgentPath, Count, Document, Line, Milliseconds, RunId, Text } from '../protocol/text.ts'

/** Beginnings of run ids, API keys and links, which no key of a run may have. */
const reserved = /^(?:run-|caisson)/
const keyForm = /^[A-Za-z0-9][A-Za-z0-9._:~-]{0,127}$/

/** The key that a caller gave a run: it tells it from the caller's other runs, and from every run id. */
export const RunKey = z
  .string()
  .regex(keyForm, 'expected 1 to 128 of A-Z a-z 0-9 . _ : ~ - that begin with a letter or digit')
  .refine((key) => !reserved.test(key), 'expected a key that begins with neither run- nor caisson')

/** A run of a path: its id, or its key. */
export const RunName = z
  .string()
  .regex(keyForm, 'expected the ID of a run (run- and 20 hex digits) or its key')
  .refine(
    (name) => RunId.safeParse(name).success || !reserved.test(name),
    'expected run- and 20 hex digits, or a key that begins with neither run- nor caisson',
  )

/** A run, as lists and `GET /v1/runs/{run}` show it. Texts of lists are cut to 500 characters. */
export const RunResource = z.strictObject({
  id: RunId,
  /** The key that its caller gave it. Absent: it has none. */
  key: RunKey.optional(),
  /** `queued`, `running`, `waiting`, `sleeping`, `interrupted`, `damaged`, or how it ended. */
  status: Line,
  /** Since when it is queued, waits, sleeps or is interrupted. */
  since: Milliseconds.optional(),
  /** Whether it sleeps because a person paused it; answers alone do not wake it. Absent: not so. */
  isPaused: z.literal(true).optional(),
  /** Absent: it does not wait in the queue. */
  queue: z
    .strictObject({
      /** 1 is next, as far as it is known now. In a fleet: among the runs of its caller. */
      place: Count.min(1),
      /** Runs that wait, of all callers. */
      waiting: Count,
      priority: RunPriority,
      /** The run ends if it has not begun by then. Absent: it waits without a limit. */
      startBy: Milliseconds.optional(),
      /** In a fleet: what it waits for, for people. Absent: for its turn. */
      why: z.string().optional(),
    })
    .optional(),
  startedAt: Milliseconds,
  prompt: Line,
  /** Path on the service's machine. */
  workspace: z.string(),
  model: Line,
  metadata: RunMetadata.optional(),
  /** Options of the request that have no effect with its model, a sentence or two each. Absent: none. */
  notes: z.array(Text).optional(),
  continues: RunId.optional(),
  /** The run that it continues from an earlier moment, as its fork. */
  forkedFrom: RunId.optional(),
  phase: z.enum(['preparing', 'planning', 'working', 'ended']),
  toolCalls: Count,
  usage: Usage,
  isUsageEstimated: z.boolean(),
  /** US dollars; null where a price is unknown. */
  costUsd: z.number().nullable(),
  /** Changed paths; null while the run has brought no changes. */
  changes: Count.nullable(),
  /** Applied paths; null before the first apply. */
  applied: Count.nullable(),
  pendingApprovals: Count,
  /** Whether a process works on it now. */
  isLive: z.boolean(),
  /** The host of the fleet that carries it out; null: none does. Absent: the service is of no fleet. */
  host: z.strictObject({ id: z.string(), name: z.string(), since: z.number() }).nullable().optional(),
  /** How it ended; null before. */
  end: z.strictObject({ outcome: Line, reason: Line, message: Line }).nullable(),
  /** Why its journal cannot be read. Absent: it can. */
  problem: z.string().optional(),
})
export type RunResource = z.infer<typeof RunResource>

/** What a request waits for: the end of the run, or also that it waits for a person. */
export const RunWait = z.enum(['end', 'attention'])
export type RunWait = z.infer<typeof RunWait>

/** The result of an ended run. */
export const RunResultResource = z.strictObject({
  runId: RunId,
  outcome: Line,
  reason: Line,
  /** Why it ended so; empty when it completed. */
  message: Text,
  /** The agent's answer. Untrusted text. */
  summary: Document,
  /** The value of `summary` where the run has an output schema. Untrusted. */
  value: z.unknown().optional(),
  changes: z.strictObject({ entries: Count, flagged: z.array(z.string()) }).nullable(),
  usage: Usage,
  isUsageEstimated: z.boolean(),
  costUsd: z.number().nullable(),
  /** SHA-256 of the journal's last line. */
  journalHead: z.string(),
})

/** A status that the next one makes obsolete; it has no number and is not stored. */
export const DeltaItem = z.strictObject({
  source: z.literal('delta'),
  runId: RunId,
  agentPath: AgentPath,
  delta: z.union([Delta, HostDelta]),
})

export const EventPage = z.strictObject({
  events: z.array(JournalEvent),
  /** `from` of the next page. */
  next: z.int().min(1),
  /** Whether the run has ended and `events` has its last one. */
  isLast: z.boolean(),
})

export const MessageRequest = z.strictObject({
  text: Text.min(1),
  /** Path of the sub-agent that gets it, such as `root/tests` or `tests`. Absent: the root agent. */
  to: Line.min(1).optional(),
  by: Line.min(1).optional(),
})

export const PauseRequest = z
  .strictObject({
    /** Who pauses or continues it, for the journal. Absent: the name of the key. */
    by: Line.min(1).optional(),
  })
  .optional()

export const CancelRequest = z
  .strictObject({
    /** Ends the VM at once, without its changes. Absent: the agent may end in order. Not with `agent`. */
    now: z.boolean().optional(),
    /** Path of the sub-agent to cancel, with those below it; the run continues. Absent: the run is cancelled. */
    agent: Line.min(1).optional(),
    /** With `agent`: for its parent and for people. */
    reason: Text.optional(),
    /** Who cancels, for the journal. Absent: the name of the key. */
    by: Line.min(1).optional(),
  })
  .refine(({ now, agent }) => now === undefined || agent === undefined, {
    path: ['now'],
    message: 'ends the whole run, so it cannot be given with agent',
  })
  .refine(({ reason, agent }) => reason === undefined || agent !== undefined, {
    path: ['reason'],
    message: 'is for the parent of a sub-agent, so it needs agent',
  })

/** A moment of a run: a step before it first started, `start`, `end` for the last checkpoint, or `now` for a new one. */
const Moment = Line.min(1)

export const ForkRequest = z.strictObject({
  at: Moment,
  /** New runs. Absent: one for each of `prompts`, else 1. */
  count: z.int().min(1).max(limits.forksMaxCount).optional(),
  /** What the person says to each new run, in their order. */
  prompts: z.array(Text).max(limits.forksMaxCount).optional(),
  /** Who forks, for the journals. Absent: the name of the key. */
  by: Line.min(1).optional(),
})

/** The new runs, which wait for `POST /v1/runs/{run}/resume`. */
export const ForksResource = z.strictObject({
  /** The step before which they begin, `start`, `now` (the moment of the request) or `end` (the last checkpoint before it). */
  step: z.string(),
  /** For `now`: why they begin at the last checkpoint instead. Absent: they begin where the request says. */
  notNow: z.string().optional(),
  /** Null: from the beginning of the run. */
  checkpointId: z.string().nullable(),
  runIds: z.array(RunId),
})

export const RewindRequest = z.strictObject({
  to: Moment,
  /** What the person says to the run from there. */
  prompt: Text.optional(),
  /** Rewinds although the run did something outside its VM since, which stays. */
  despiteEffects: z.boolean().optional(),
  /** Who rewinds, for the journals. Absent: the name of the key. */
  by: Line.min(1).optional(),
})

export const RewoundResource = z.strictObject({
  /** The run that takes the place of the other; it waits for `POST /v1/runs/{run}/resume`. */
  runId: RunId,
  step: z.string(),
  /** What the other run did outside its VM behind the moment. */
  effects: z.array(z.string()),
})
