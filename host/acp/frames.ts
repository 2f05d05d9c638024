/**
 * Frames on standard input and output: one JSON object a line. Checks all that this side sends, and the answers that it
 * gets, against the schema of the protocol; the SDK checks requests of the client. Ends the connection at a line that is
 * too long.
 */
import { Readable, Writable } from 'node:stream'
import { type AnyMessage, ndJsonStream, type Stream } from '@agentclientprotocol/sdk'
import { FrameSchema } from './schema.ts'

/** Of one line: a prompt with images, or the content of a file. */
const frameMaxBytes = 32 * 1024 * 1024
/** Requests without an answer, of each side; beyond it the oldest are not checked. */
const openMax = 1_024

export interface FrameOptions {
  readonly input: Readable
  readonly output: Writable
  /** Gets what is wrong with a frame, for the log. */
  readonly log: (line: string) => void
}

/** @returns the frames for the SDK */
export function openFrames({ input, output, log }: FrameOptions): Stream {
  const plain = ndJsonStream(
    Writable.toWeb(output) as WritableStream<Uint8Array>,
    Readable.toWeb(input) as ReadableStream<Uint8Array>,
    { maxMessageBytes: frameMaxBytes },
  )
  return checkFrames(plain, log)
}

type Id = string | number | null

export function checkFrames({ readable, writable }: Stream, log: (line: string) => void): Stream {
  const schema = new FrameSchema()
  /** Methods of requests without an answer, by the side that asked. */
  const open = { client: new Map<Id, string>(), agent: new Map<Id, string>() }
  let deliver: (message: AnyMessage) => void = () => undefined
  const incoming = new TransformStream<AnyMessage, AnyMessage>({
    start: (controller) => {
      deliver = (message) => controller.enqueue(message)
    },
    transform: (message, controller) => {
      const { id, method } = partsOf(message)
      if (method !== undefined) {
        if (id !== undefined) remember(open.client, id, method)
        controller.enqueue(message)
        return
      }
      const asked = take(open.agent, id)
      const fault =
        asked === undefined || !('result' in message)
          ? undefined
          : schema.findFault('client', asked, 'result', message.result)
      if (fault === undefined) return controller.enqueue(message)
      log(`the client's answer to ${asked} does not fit: ${fault}`)
      controller.enqueue(failure(id ?? null, 'the answer does not fit the protocol'))
    },
  })
  const writer = writable.getWriter()
  const send = async (given: AnyMessage): Promise<void> => {
    const message = wellFormed(given)
    const { id, method } = partsOf(message)
    if (method !== undefined) {
      const fault = schema.findFault('client', method, 'params', 'params' in message ? message.params : {})
      if (fault === undefined) {
        if (id !== undefined) remember(open.agent, id, method)
        return await writer.write(message)
      }
      log(`not sent, because it does not fit the protocol: ${method}: ${fault}`)
      if (id !== undefined) deliver(failure(id, 'the request does not fit the protocol'))
      return
    }
    const asked = take(open.client, id)
    const fault =
      asked === undefined || !('result' in message)
        ? undefined
        : schema.findFault('agent', asked, 'result', message.result)
    if (fault !== undefined) log(`not sent, because it does not fit the protocol: ${asked}: ${fault}`)
    await writer.write(
      fault === undefined ? message : failure(id ?? null, 'the answer does not fit the protocol'),
    )
  }
  const outgoing = new WritableStream<AnyMessage>({
    write: send,
    close: () => writer.close(),
    abort: (reason) => writer.abort(reason),
  })
  return { readable: readable.pipeThrough(incoming), writable: outgoing }
}

function partsOf(message: AnyMessage): { readonly id?: Id; readonly method?: string } {
  return {
    ...('id' in message ? { id: message.id as Id } : {}),
    ...('method' in message && typeof message.method === 'string' ? { method: message.method } : {}),
  }
}

function remember(open: Map<Id, string>, id: Id, method: string): void {
  const [oldest] = open.keys()
  if (open.size >= openMax && oldest !== undefined) open.delete(oldest)
  open.set(id, method)
}

function take(open: Map<Id, string>, id: Id | undefined): string | undefined {
  if (id === undefined) return undefined
  const method = open.get(id)
  open.delete(id)
  return method
}

function failure(id: Id, message: string): AnyMessage {
  return { jsonrpc: '2.0', id, error: { code: -32603, message } }
}

/** Names of files may have bytes that are no text, which stand as lone surrogates; many clients refuse those. */
function wellFormed(message: AnyMessage): AnyMessage {
  const text = JSON.stringify(message)
  if (!/\\ud[89a-f]/.test(text)) return message
  const clean = text.replace(/\\(?:ud[89a-f][0-9a-f]{2}|.)/g, (found) =>
    found.startsWith('\\ud') ? '\ufffd' : found,
  )
  return JSON.parse(clean) as AnyMessage
}
