/** Runs a block job of QEMU to its end. */
import { setTimeout as sleep } from 'node:timers/promises'
import { z } from 'zod'
import { type Qmp, QmpError } from './qmp.ts'

const pollMs = 1

const jobsSchema = z.array(
  z.looseObject({ id: z.string(), status: z.string(), error: z.string().optional() }),
)

/**
 * @param args of `command`, with the job's name as its `job-id`; a job that dismisses itself is not seen to the end
 * @throws {QmpError} when QEMU refuses it, or it fails or does not end in time; it is dismissed then
 */
export async function runBlockJob(
  qmp: Qmp,
  command: string,
  args: Readonly<Record<string, unknown>> & { readonly 'job-id': string },
  deadlineMs: number,
): Promise<void> {
  const id = args['job-id']
  await qmp.execute(command, args)
  const deadline = performance.now() + deadlineMs
  for (;;) {
    const job = jobsSchema.parse(await qmp.execute('query-jobs')).find((one) => one.id === id)
    if (job === undefined) throw new QmpError('protocol', `QMP: ${command}: the job ended unseen`)
    if (job.status === 'concluded') {
      await qmp.execute('job-dismiss', { id })
      if (job.error !== undefined) throw new QmpError('refused', `QMP: ${command}: ${job.error}`)
      return
    }
    if (performance.now() > deadline) {
      await qmp.execute('job-cancel', { id }).catch(() => undefined)
      throw new QmpError('timeout', `QMP: ${command}: the job did not end within ${deadlineMs} ms`)
    }
    await sleep(pollMs)
  }
}
