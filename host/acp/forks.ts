/** Forks of runs for forked sessions: made when the session is, and started with the words of its first prompt. */
import { hasCode } from '#specs/errors.ts'
import type { ForkOptions, Host } from '../index.ts'
import { forkMessageIdOf, metadataKeys, type PastSession } from './history.ts'
import { notPossibleNow } from './refusals.ts'
import type { Mode } from './settings.ts'
import type { Carrier } from './turn.ts'
import type { RunUpdates } from './updates.ts'

/** Forks a run at its last moment; one that changed nothing, at its beginning. @returns the new run */
export async function forkLast(
  host: Host,
  runId: string,
  options: Pick<ForkOptions, 'by' | 'metadata' | 'prompts'>,
): Promise<string> {
  const { runIds } = await host.fork(runId, { ...options, at: 'now' }).catch(async (error: unknown) => {
    if (!hasCode(error, 'not_possible_now')) throw error
    return await host.fork(runId, { ...options, at: 'start' })
  })
  return runIds[0] as string
}

/**
 * Starts a fork that waits for its words: a further fork has them from its first moment, and takes its place.
 * @returns the run that is at work
 */
export async function startFork(
  host: Host,
  { wake }: Carrier,
  { last }: PastSession,
  { words, by, mode }: { readonly words: string; readonly by: string; readonly mode: Mode },
): Promise<string> {
  if (await host.runs.isLive(last.id))
    throw notPossibleNow(
      `${last.id}, the run of this fork, was continued elsewhere; open the session again to follow it`,
    )
  const session = last.metadata?.[metadataKeys.session]
  const metadata = {
    ...(session === undefined ? {} : { [metadataKeys.session]: session }),
    [metadataKeys.mode]: mode,
  }
  const runId = await forkLast(host, last.id, { by, prompts: [words], metadata })
  try {
    await wake(runId)
  } catch (error) {
    await host.runs.remove(runId).catch(() => undefined)
    throw error
  }
  // The new run is at work by now, and is followed in any case.
  await host.runs.remove(last.id).catch(() => undefined)
  return runId
}

/** Takes the events of a fork until the words that it began with. @returns `seq` of the next one */
export async function untilWords(host: Host, runId: string, updates: RunUpdates): Promise<number> {
  for await (const event of host.runs.stream(runId)) {
    updates.of(event)
    if (event.event.type === 'steer-request' && event.event.messageId === forkMessageIdOf(runId))
      return event.seq + 1
  }
  return 1
}
