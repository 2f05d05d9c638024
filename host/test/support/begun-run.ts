/** The beginning of a run's journal, for tests that need a run and no VM. */
import { RunLimits } from '#specs/protocol/task.ts'
import type { Host } from '../../host.ts'
import { RunRecord } from '../../journal/run-record.ts'
import { prepareFolders } from '../../state/folders.ts'

/** The caller disposes of the record. */
export async function beginRun(
  host: Host,
  runId: string,
  directory: string,
  metadata?: Readonly<Record<string, string>>,
) {
  await prepareFolders(host.folders)
  const paths = await host.runs.create(runId)
  const record = await RunRecord.open(paths)
  await record.host({
    type: 'run-start',
    prompt: 'p',
    model: 'm',
    provider: 'offline',
    directory,
    limits: RunLimits.parse({}),
    imageKey: 'k',
    agentDigest: 'd',
    ...(metadata === undefined ? {} : { metadata }),
  })
  return { paths, record }
}
