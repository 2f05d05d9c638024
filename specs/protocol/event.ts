/**
 * Events: the content of a run's journal. The agent's are claims, the host's are facts. Only the host numbers
 * (`seq`), timestamps and chains them.
 */
import * as z from 'zod'
import { AgentEvent } from './agent-event.ts'
import { HostEvent } from './host-event.ts'
import { AgentPath, Count, Milliseconds, RunId, Sha256 } from './text.ts'

export { AgentEvent, Delta } from './agent-event.ts'
export { HostDelta, HostEvent, LeftOut } from './host-event.ts'

/** One line of a journal. */
export const JournalEvent = z.discriminatedUnion('source', [
  z.strictObject({
    seq: Count.min(1),
    /** Host clock, ms since 1970. */
    at: Milliseconds,
    runId: RunId,
    source: z.literal('host'),
    event: HostEvent,
    /** `hash` of the previous line; 64 zeros in the first. */
    prev: Sha256,
    /** sha256 over the JSON of this object without `hash`, keys in their stored order. */
    hash: Sha256,
  }),
  z.strictObject({
    seq: Count.min(1),
    at: Milliseconds,
    runId: RunId,
    source: z.literal('agent'),
    agentPath: AgentPath,
    /** The guest's own count of its events in this run. */
    n: Count.min(1),
    event: AgentEvent,
    prev: Sha256,
    hash: Sha256,
  }),
])
export type JournalEvent = z.infer<typeof JournalEvent>
