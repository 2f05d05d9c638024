/**
 * What a run did outside its VM behind a moment. A rewind undoes none of it, so the person must know and accept it.
 */
import type { JournalEvent } from '#specs/protocol/event.ts'
import { limits } from '#specs/protocol/limits.ts'

/** Effects that a refusal names. */
const namedMaxCount = 20

/** In the person's words, each once, in order; at most 20, the last says how many more. */
export function outsideEffects(lines: Iterable<Pick<JournalEvent, 'event'>>): string[] {
  const effects = new Set<string>()
  /** Paths that are applied now, as far as these lines say. */
  let applied = 0
  for (const { event } of lines) {
    switch (event.type) {
      case 'apply-end':
        applied = event.total ?? applied + event.applied
        break
      case 'undo-end':
        applied = event.total ?? Math.max(0, applied - event.restored)
        break
      case 'host-tool-start':
        effects.add(`${event.tool} ran on this host: ${event.arguments}`)
        break
      case 'egress-start':
        effects.add(`a program reached ${event.target}`)
        break
      case 'egress-end':
        // Older journals have the end alone. The web tools only read.
        if (event.kind === 'tunnel' || event.kind === 'http') effects.add(`a program reached ${event.target}`)
        break
      default:
    }
  }
  if (applied > 0) effects.add(`${applied} of its changes are applied to the workspace`)
  const all = [...effects].map((effect) => effect.slice(0, limits.lineMaxChars).toWellFormed())
  if (all.length <= namedMaxCount) return all
  return [...all.slice(0, namedMaxCount - 1), `${all.length - namedMaxCount + 1} more`]
}

/** The lines behind a checkpoint; all but the first of a run's for null, its beginning. */
export function behind(lines: readonly JournalEvent[], checkpointId: string | null): readonly JournalEvent[] {
  const at = lines.findLastIndex(
    ({ event }) => event.type === 'checkpoint' && event.checkpointId === checkpointId,
  )
  return lines.slice(checkpointId === null ? 1 : at + 1)
}
