/**
 * Frames on standard input and output: one JSON object a line. Checks all that this side sends, and the answers that it
 * gets, against the schema of the version of the protocol; the SDK checks requests of the client, and those of version 2 are
 * checked here too. Ends the connection at a line that is too long.
 */
import { Readable, Writable } from 'node:stream'
import { type AnyMessage, ndJsonStream, type Stream } from '@agentclientprotocol/sdk'
import { isWithinDepth } from '#specs/protocol/json-depth.ts'
import { FrameSchema, type ProtocolVersion } from './schema.ts'

/** Of one line: a prompt with images, or the content of a file. */
const frameMaxBytes = 32 * 1024 * 1024
/** Objects and lists in each other: what nests deeper cannot be written as JSON again. */
const frameMaxDepth = 256
/** Requests without an answer, of each side; beyond it the oldest are not checked. */
const openMax = 1_024
/** JSON-RPC 2.0, section 5.1. */
const [invalidRequest, invalidParams, internalError] = [-32_600, -32_602, -32_603]

export interface FrameOptions {
  readonly input: Readable
  readonly output: Writable
  /** Gets what is wrong with a frame, for the log. */
  readonly log: (line: string) => void
  /** Whether forks of sessions are part of the protocol. Default: false. */
  readonly hasFork?: boolean
}

export interface Frames {
  /** For the SDK. */
  readonly stream: Stream
  /** Why there is no more input; undefined while there is, and at its end. */
  inputError(): unknown
}

export function openFrames({ input, output, log, hasFork = false }: FrameOptions): Frames {
  const plain = ndJsonStream(
    Writable.toWeb(output) as WritableStream<Uint8Array>,
    Readable.toWeb(input) as ReadableStream<Uint8Array>,
    { maxMessageBytes: frameMaxBytes },
  )
  let inputError: unknown
  const watched = new TransformStream<AnyMessage, AnyMessage>()
  plain.readable.pipeTo(watched.writable).catch((error: unknown) => {
    inputError = error
  })
  const stream = checkFrames({ readable: watched.readable, writable: plain.writable }, log, hasFork)
  return { stream, inputError: () => inputError }
}

type Id = string | number | null

export function checkFrames(stream: Stream, log: (line: string) => void, hasFork = false): Stream {
  return new CheckedFrames(stream, log, hasFork).stream
}

class CheckedFrames {
  readonly stream: Stream
  readonly #log: (line: string) => void
  readonly #hasFork: boolean
  readonly #writer: WritableStreamDefaultWriter<AnyMessage>
  /** Methods of requests without an answer, by the side that asked. */
  readonly #open = { client: new Map<Id, string>(), agent: new Map<Id, string>() }
  #version: ProtocolVersion = 1
  #schema: FrameSchema
  #deliver: (message: AnyMessage) => void = () => undefined

  constructor({ readable, writable }: Stream, log: (line: string) => void, hasFork: boolean) {
    this.#log = log
    this.#hasFork = hasFork
    this.#schema = new FrameSchema(this.#version, hasFork)
    this.#writer = writable.getWriter()
    const incoming = new TransformStream<AnyMessage, AnyMessage>({
      start: (controller) => {
        this.#deliver = (message) => controller.enqueue(message)
      },
      transform: async (message) => await this.#receive(message),
    })
    const outgoing = new WritableStream<AnyMessage>({
      write: async (message) => await this.#send(message),
      close: async () => await this.#writer.close(),
      abort: async (reason) => await this.#writer.abort(reason),
    })
    this.stream = { readable: readable.pipeThrough(incoming), writable: outgoing }
  }

  async #receive(message: AnyMessage): Promise<void> {
    if (!isWithinDepth(message, frameMaxDepth)) return await this.#refuse(message)
    const { id, method } = partsOf(message)
    if (method !== undefined) {
      const fault = this.#faultOfRequest(method, message)
      if (fault === undefined) {
        if (id !== undefined) remember(this.#open.client, id, method)
        return this.#deliver(message)
      }
      this.#log(`the client's ${method} does not fit: ${fault}`)
      if (id === undefined) return
      return await this.#writer.write(
        failure(id, `${method} does not fit the protocol: ${fault}`, invalidParams),
      )
    }
    const asked = take(this.#open.agent, id)
    const fault = this.#faultOfResult('client', asked, message)
    if (fault === undefined) return this.#deliver(message)
    this.#log(`the client's answer to ${asked} does not fit: ${fault}`)
    this.#deliver(failure(id ?? null, 'the answer does not fit the protocol'))
  }

  /** Of a frame that nests too deep, no more than its kind and a plain ID is used. */
  async #refuse(message: AnyMessage): Promise<void> {
    const { method } = partsOf(message)
    const given = 'id' in message ? message.id : undefined
    const id = typeof given === 'string' || typeof given === 'number' ? given : null
    this.#log(`a frame of the client does not fit: ${tooDeep}`)
    if (method === undefined && take(this.#open.agent, id) !== undefined)
      return this.#deliver(failure(id, 'the answer does not fit the protocol'))
    const isAnswer = 'result' in message || 'error' in message
    if (method === undefined ? isAnswer : given === undefined) return
    await this.#writer.write(failure(id, `the frame ${tooDeep}`, invalidRequest))
  }

  async #send(given: AnyMessage): Promise<void> {
    const isTooDeep = !isWithinDepth(given, frameMaxDepth)
    const message = isTooDeep ? given : wellFormed(given)
    const { id, method } = partsOf(message)
    if (method !== undefined) {
      const fault = isTooDeep
        ? tooDeep
        : this.#schema.findFault('client', method, 'params', paramsOf(message))
      if (fault === undefined) {
        if (id !== undefined) remember(this.#open.agent, id, method)
        return await this.#writer.write(message)
      }
      this.#log(`not sent, because it does not fit the protocol: ${method}: ${fault}`)
      if (id !== undefined) this.#deliver(failure(id, 'the request does not fit the protocol'))
      return
    }
    const asked = take(this.#open.client, id)
    if (asked === 'initialize') this.#chooseVersion(message)
    const fault = isTooDeep ? tooDeep : this.#faultOfResult('agent', asked, message)
    if (fault !== undefined) this.#log(`not sent, because it does not fit the protocol: ${asked}: ${fault}`)
    await this.#writer.write(
      fault === undefined ? message : failure(id ?? null, 'the answer does not fit the protocol'),
    )
  }

  /** The agent's answer says which version both speak from now on. */
  #chooseVersion(message: AnyMessage): void {
    const result = 'result' in message ? message.result : undefined
    const isSecond = (result as { readonly protocolVersion?: unknown } | undefined)?.protocolVersion === 2
    if (!isSecond || this.#version === 2) return
    this.#version = 2
    this.#schema = new FrameSchema(2, this.#hasFork)
  }

  /** A client may ask again to initialize, for another version. */
  #faultOfRequest(method: string, message: AnyMessage): string | undefined {
    if (this.#version === 1 || method === 'initialize') return undefined
    return this.#schema.findFault('agent', method, 'params', paramsOf(message))
  }

  #faultOfResult(side: 'agent' | 'client', asked: string | undefined, message: AnyMessage) {
    if (asked === undefined || !('result' in message)) return undefined
    return this.#schema.findFault(side, asked, 'result', message.result)
  }
}

const tooDeep = `nests deeper than ${frameMaxDepth} levels; send less nested content`

function paramsOf(message: AnyMessage): unknown {
  return 'params' in message ? message.params : {}
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

function failure(id: Id, message: string, code = internalError): AnyMessage {
  return { jsonrpc: '2.0', id, error: { code, message } }
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
