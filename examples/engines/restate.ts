/**
 * Restate: a workflow whose step is a run of Caisson. The run is started by the ID of the invocation; webhooks of Caisson
 * wake the workflow, so nothing waits in memory while the agent works or a person thinks.
 */
import * as restate from '@restatedev/restate-sdk'
import { readWebhook, ServiceClient, ServiceError, WebhookError } from 'caisson/client'

const {
  CAISSON_URL: baseUrl = 'http://127.0.0.1:3789',
  CAISSON_TOKEN: token = '',
  CAISSON_HOOK_SECRET: secret = '',
  CHAT_URL: chat,
  PORT: port = '9080',
} = process.env
const client = new ServiceClient({ baseUrl, token })

interface Task {
  readonly prompt: string
  /** On the machine of the service. Absent: an empty one. */
  readonly workspace?: string
}

interface End {
  readonly outcome: string
  readonly message: string
}

const agent = restate.service({
  name: 'agent',
  handlers: {
    /** Carries out a task. Its answer is what the run changed, as a patch. */
    run: async (
      ctx: restate.Context,
      { prompt, workspace }: Task,
    ): Promise<{ runId: string; patch: string }> => {
      const key = ctx.request().id
      const end = ctx.awakeable<End>()
      const body = {
        prompt,
        metadata: { awakeable: end.id },
        ...(workspace === undefined ? {} : { workspace }),
      }
      try {
        // Killed in here, it sends the same request again, and finds the run that began.
        const runId = await ctx.run('start', async () => {
          const run = await client.call('putRun', { params: { key }, body }).catch(orGiveUp)
          return run.id
        })
        const { outcome, message } = await endOf(ctx, runId, end.promise)
        if (outcome !== 'completed') throw new restate.TerminalError(`${runId} ${outcome}: ${message}`)
        return {
          runId,
          patch: await ctx.run('patch', () => client.call('getPatch', { params: { run: runId } })),
        }
      } catch (error) {
        if (error instanceof restate.CancelledError)
          await ctx.run('cancel', async () => {
            await client.call('cancelRun', { params: { run: key }, body: {} }).catch(unlessOver)
          })
        throw error
      }
    },
  },
})

/** A message can be lost, so the run is looked at once an hour besides. */
async function endOf(ctx: restate.Context, runId: string, told: restate.RestatePromise<End>): Promise<End> {
  for (;;) {
    try {
      return await told.orTimeout({ hours: 1 })
    } catch (error) {
      if (!(error instanceof restate.TimeoutError)) throw error
      const end = await ctx.run('look', async () => {
        const run = await client.call('getRun', { params: { run: runId } })
        return run.end === null ? null : { outcome: run.end.outcome, message: run.end.message }
      })
      if (end !== null) return end
    }
  }
}

const caisson = restate.service({
  name: 'caisson',
  handlers: {
    /** `url` of the webhook in the configuration of Caisson: http://127.0.0.1:8080/caisson/webhook */
    webhook: restate.createServiceHandler(
      { input: restate.serde.binary, accept: '*/*' },
      async (ctx: restate.Context, body: Uint8Array): Promise<void> => {
        const message = await ctx.run('check', async () => {
          try {
            return (await readWebhook({ body, headers: ctx.request().headers, secret })).message
          } catch (error) {
            if (error instanceof WebhookError)
              throw new restate.TerminalError(error.message, { errorCode: 401 })
            throw error
          }
        })
        const { data } = message
        if (message.type === 'question.waiting') {
          const { title, text, link = `${baseUrl}/` } = message.data
          await ctx.run('tell', () => tell(`${title} ${text}\n${link}`))
        } else if (data.metadata?.awakeable !== undefined)
          ctx.resolveAwakeable<End>(data.metadata.awakeable, {
            outcome: message.data.outcome,
            message: message.data.message,
          })
      },
    ),
  },
})

/** Tells a person: who has the link may answer the question once. */
async function tell(text: string): Promise<void> {
  if (chat === undefined) return console.log(text)
  const headers = { 'content-type': 'application/json' }
  const sent = await fetch(chat, { method: 'POST', headers, body: JSON.stringify({ text }) })
  if (!sent.ok) throw new Error(`the chat answered ${sent.status}`)
}

/** What the service will never take is no reason to try again. */
function orGiveUp(error: unknown): never {
  if (error instanceof ServiceError && [400, 401, 403, 404, 409].includes(error.status))
    throw new restate.TerminalError(error.message)
  throw error
}

/** It never began, or has ended. */
function unlessOver(error: unknown): void {
  if (!(error instanceof ServiceError) || ![404, 409].includes(error.status)) throw error
}

await restate.serve({ services: [agent, caisson], port: Number(port) })
