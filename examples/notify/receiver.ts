// Receives the webhooks of a Caisson service: checks the signature, drops doubles, and hands each question on once.
import { createServer, type IncomingMessage, type Server } from 'node:http'
import { Webhook, WebhookVerificationError } from 'standardwebhooks'
import * as z from 'zod'

const bodyMaxBytes = 64 * 1024
/** Ids of delivered messages, the newest: the service tries one for 24 hours at most. */
const deliveredMax = 10_000

const Message = z.object({
  type: z.literal('question.waiting'),
  data: z.object({
    runId: z.string(),
    questionId: z.string(),
    title: z.string(),
    text: z.string(),
    /** The agent wrote the text, and nobody has checked it. */
    isClaim: z.boolean(),
    link: z.url().optional(),
    linkExpiresAt: z.string().optional(),
  }),
})

export type Question = z.infer<typeof Message>['data'] & {
  /** The same for each attempt. */
  readonly id: string
}

/** The message will never be taken; the service does not try again. Any other error lets it try again. */
export class RefusedError extends Error {}

/** Sends a question to people; resolves once the other server has it. */
export type Deliver = (question: Question) => Promise<void>

/** @param secret `whsec_…`, as in the configuration of the service */
export function receive(secret: string, deliver: Deliver): Server {
  const webhook = new Webhook(secret)
  const deliveries = new Map<string, Promise<void>>()

  async function answer(request: IncomingMessage): Promise<number> {
    if (request.method !== 'POST') return 405
    const body = await readBody(request)
    if (body === undefined) return 413
    const { 'webhook-id': id, ...others } = request.headers
    if (typeof id !== 'string') return 401
    const signed = { 'webhook-id': id, ...textsOf(others) }
    try {
      webhook.verify(body, signed)
    } catch (error) {
      if (error instanceof WebhookVerificationError) return 401
      throw error
    }
    const message = Message.safeParse(JSON.parse(body))
    // Later versions may send other types.
    if (!message.success) return 204
    await deliverOnce({ ...message.data.data, id })
    return 204
  }

  /** A second attempt waits for the first one. */
  async function deliverOnce(question: Question): Promise<void> {
    const under = deliveries.get(question.id)
    if (under !== undefined) return await under
    const delivery = deliver(question)
    deliveries.set(question.id, delivery)
    const [oldest] = deliveries.keys()
    if (deliveries.size > deliveredMax && oldest !== undefined) deliveries.delete(oldest)
    try {
      await delivery
    } catch (error) {
      deliveries.delete(question.id)
      throw error
    }
  }

  return createServer({ requestTimeout: 10_000, headersTimeout: 5_000 }, (request, response) => {
    answer(request).then(
      (status) => response.writeHead(status, { connection: 'close' }).end(),
      (error: unknown) => {
        console.error(
          `A message could not be handed on: ${error instanceof Error ? error.message : 'unknown'}`,
        )
        response.writeHead(error instanceof RefusedError ? 422 : 503, { connection: 'close' }).end()
      },
    )
  })
}

/** Starts on the port of the variable PORT, on 127.0.0.1: a proxy with TLS leads there. */
export function start(deliver: Deliver): void {
  const secret = requireVariable('WEBHOOK_SECRET')
  if (!/^whsec_[A-Za-z0-9+/]{16,}=*$/.test(secret))
    fail('WEBHOOK_SECRET is not whsec_ and base64. Set it to the secret of the webhook in the configuration.')
  const server = receive(secret, deliver)
  server.listen(Number(process.env.PORT ?? 8787), '127.0.0.1', () => {
    const address = server.address()
    if (address !== null && typeof address === 'object')
      console.log(`Listens on http://127.0.0.1:${address.port}`)
  })
}

export function requireVariable(name: string): string {
  const value = process.env[name]
  return value === undefined || value === '' ? fail(`Set the variable ${name}.`) : value
}

/** Ends the program: its settings cannot be used. */
export function fail(message: string): never {
  console.error(message)
  process.exit(2)
}

/** @returns undefined where the body is too large */
async function readBody(request: IncomingMessage): Promise<string | undefined> {
  const pieces: Buffer[] = []
  let bytes = 0
  for await (const piece of request as AsyncIterable<Buffer>) {
    bytes += piece.length
    if (bytes > bodyMaxBytes) return undefined
    pieces.push(piece)
  }
  return Buffer.concat(pieces).toString('utf8')
}

function textsOf(headers: IncomingMessage['headers']): Record<string, string> {
  return Object.fromEntries(
    Object.entries(headers).flatMap(([name, value]) => (typeof value === 'string' ? [[name, value]] : [])),
  )
}
