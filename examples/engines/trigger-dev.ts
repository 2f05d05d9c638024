/**
 * Trigger.dev: a task that waits for a run of Caisson without a machine of its own. Webhooks of Caisson complete the token
 * that it waits for, by `webhook` in an HTTP server of yours.
 */
import { AbortTaskRunError, logger, task, wait } from '@trigger.dev/sdk'
import { readWebhook, ServiceClient, ServiceError } from 'caisson/client'

const {
  CAISSON_URL: baseUrl = 'http://127.0.0.1:3789',
  CAISSON_TOKEN: token = '',
  CAISSON_HOOK_SECRET: secret = '',
} = process.env
const client = new ServiceClient({ baseUrl, token })

interface TaskPayload {
  readonly prompt: string
  /** On the machine of the service. Absent: an empty one. */
  readonly workspace?: string
}

interface End {
  readonly outcome: string
  readonly message: string
}

export const carryOutTask = task({
  id: 'carry-out-task',
  retry: { maxAttempts: 5 },
  run: async ({ prompt, workspace }: TaskPayload, { ctx }) => {
    // The same for each attempt, as the key of the run is.
    const end = await wait.createToken({ idempotencyKey: ctx.run.id, timeout: '1d' })
    const body = { prompt, metadata: { token: end.id }, ...(workspace === undefined ? {} : { workspace }) }
    const run = await client.call('putRun', { params: { key: ctx.run.id }, body }).catch(orGiveUp)
    logger.info(`started ${run.id}`)
    const told = await wait.forToken<End>(end)
    const { outcome, message } = told.ok ? told.output : await endOf(run.id)
    if (outcome !== 'completed') throw new AbortTaskRunError(`${run.id} ${outcome}: ${message}`)
    return { runId: run.id, patch: await client.call('getPatch', { params: { run: run.id } }) }
  },
  onCancel: async ({ ctx }) => {
    await client.call('cancelRun', { params: { run: ctx.run.id }, body: {} }).catch(unlessOver)
  },
})

/** A message can be lost, or a person takes longer than the token waits: then the run is looked at once an hour. */
async function endOf(runId: string): Promise<End> {
  for (;;) {
    const { end } = await client.call('getRun', { params: { run: runId } })
    if (end !== null) return { outcome: end.outcome, message: end.message }
    await wait.for({ hours: 1 })
  }
}

/** The route that the webhook in the configuration of Caisson names. @param tell sends a person a text with a link */
export async function webhook(request: Request, tell: (text: string) => Promise<void>): Promise<Response> {
  const read = { body: await request.text(), headers: request.headers, secret }
  const checked = await readWebhook(read).catch(() => null)
  if (checked === null) return new Response(null, { status: 401 })
  const { message } = checked
  if (message.type === 'question.waiting') {
    const { title, text, link = `${baseUrl}/` } = message.data
    await tell(`${title} ${text}\n${link}`)
  } else if (message.data.metadata?.token !== undefined) {
    const { outcome, message: why } = message.data
    await wait.completeToken<End>(message.data.metadata.token, { outcome, message: why })
  }
  return new Response(null, { status: 204 })
}

/** What the service will never take is no reason for another attempt. */
function orGiveUp(error: unknown): never {
  if (error instanceof ServiceError && [400, 401, 403, 404, 409].includes(error.status))
    throw new AbortTaskRunError(error.message)
  throw error
}

/** It never began, or has ended. */
function unlessOver(error: unknown): void {
  if (!(error instanceof ServiceError) || ![404, 409].includes(error.status)) throw error
}
