/** What a terminal says of a run of another process: that it does not answer, and that this process knows no more of it. */
import { AnswerProbe } from '../../control/answer-probe.ts'
import type { WatchEnd } from '../../control/run-client.ts'
import type { Host } from '../../host.ts'
import { findRunHolder } from '../../workspace/run-lock.ts'
import { type ExitCode, exitCodes } from '../exit-codes.ts'
import type { Io } from '../io.ts'
import { sanitizeLine } from '../render/sanitize.ts'

/**
 * Says when the run's process stops answering, and when it answers again.
 * @param leaving how to leave it
 */
export function watchAnswers(
  { folders, runs }: Host,
  runId: string,
  { say, leaving }: { readonly say: (line: string) => void; readonly leaving: string },
): Disposable {
  const nameProcess = async () => {
    const pid = await findRunHolder(folders.locks, runId)
    return { pid, name: pid === undefined ? `The process of ${runId}` : `The run's process ${pid}` }
  }
  const sayStopped = async (since: number) => {
    const { pid, name } = await nameProcess()
    const time = new Date(since).toTimeString().slice(0, 8)
    const remedy = pid === undefined ? '' : ` If it is stopped, continue it: kill -CONT ${pid}.`
    say(`${name} has not answered since ${time}.${remedy} ${leaving}`)
  }
  return new AnswerProbe({
    path: runs.paths(runId).control,
    onSilent: (since) => void sayStopped(since),
    onAnswer: () => void nameProcess().then(({ name }) => say(`${name} answers again.`)),
  })
}

/** Says where the run is that this process watches no longer. */
export function tellUnended(
  { stderr }: Io,
  runId: string,
  end: Exclude<WatchEnd, { kind: 'ended' }>,
): ExitCode {
  if (end.kind === 'sleeping') {
    stderr.write(
      `${runId} sleeps until you answer (caisson approvals list ${runId}) or, if it is paused, resume it (caisson runs resume ${runId})\n`,
    )
    return exitCodes.completed
  }
  if (end.kind === 'left') {
    stderr.write(`Left ${runId}, which continues. To return: caisson attach ${runId}\n`)
    return exitCodes.cancelled
  }
  stderr.write(`caisson: ${sanitizeLine(end.message, 2_000)}\n`)
  return exitCodes.failed
}
