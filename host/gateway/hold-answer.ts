/**
 * Holds back a model's answer until its hooks have checked all of it: reads and assembles it within a limit. The guest
 * gets nothing before that, and nothing of an interrupted answer.
 */
import { createParser } from 'eventsource-parser'
import { z } from 'zod'
import type { Result } from '#specs/protocol/error.ts'
import { parseJson } from '../files/json.ts'
import { gatewayError, type WireError } from '../net/gateway-error.ts'
import { type UpstreamAnswer, UpstreamBreak } from '../providers/upstream.ts'

/** Maximum bytes of a held answer. */
const heldMaxBytes = 16 * 1024 * 1024

/** A model's answer, streamed or not. */
export interface ModelReply {
  readonly text: string
  readonly reasoning: string
  readonly calls: readonly { readonly name: string; readonly arguments: string }[]
}

interface HeldAnswer {
  readonly reply: ModelReply
  /** The answer with the same bytes, ready to send. */
  readonly answer: UpstreamAnswer
  readonly bytes: Buffer
}

/** The complete answer. On error: the error for the guest, with the bytes spent. */
export async function holdAnswer(
  answer: UpstreamAnswer,
  signal: AbortSignal,
): Promise<Result<HeldAnswer, { error: WireError; bytes: Buffer }>> {
  const parts: Uint8Array[] = []
  let length = 0
  let error: WireError | null = null
  try {
    for await (const chunk of answer.body) {
      length += chunk.byteLength
      if (length > heldMaxBytes) {
        const text = `The model's answer is larger than the ${heldMaxBytes / 1024 / 1024} MiB that are held back for a hook.`
        error = gatewayError('response_too_large', text)
        break
      }
      parts.push(chunk)
      if (signal.aborted) break
    }
  } catch (cause) {
    if (!(cause instanceof UpstreamBreak)) throw cause
    error = cause.error
  }
  const bytes = Buffer.concat(parts)
  if (error !== null) return { ok: false, error: { error, bytes } }
  const reply = answer.streamed ? readStream(bytes) : readWhole(bytes)
  if (reply === null) {
    const text = 'The model’s answer could not be read, and a hook has to look at it.'
    return { ok: false, error: { error: gatewayError('upstream_broken', text), bytes } }
  }
  return { ok: true, value: { reply, answer: { ...answer, body: again(bytes) }, bytes } }
}

async function* again(bytes: Buffer): AsyncGenerator<Uint8Array> {
  yield bytes
}

const Words = z.string().nullish()
const CallPiece = z.object({
  index: z.int().min(0).max(1_000).nullish(),
  function: z.object({ name: Words, arguments: Words }).nullish(),
})
const Piece = z.object({
  content: Words,
  reasoning_content: Words,
  reasoning: Words,
  tool_calls: z.array(CallPiece).nullish(),
})
const Choices = z.object({
  choices: z.array(z.object({ delta: Piece.nullish(), message: Piece.nullish() })).nullish(),
})

interface Gathered {
  text: string
  reasoning: string
  calls: { name: string; arguments: string }[]
}

/** Null if any event has an unknown form, since hooks could not check it. */
function readStream(bytes: Buffer): ModelReply | null {
  const gathered: Gathered = { text: '', reasoning: '', calls: [] }
  let isReadable = true
  const parser = createParser({
    maxBufferSize: heldMaxBytes + 1,
    onEvent: ({ data }) => {
      if (data !== '[DONE]') isReadable &&= add(parseJson(data), gathered)
    },
  })
  parser.feed(bytes.toString('utf8'))
  // Completes a last event without a trailing blank line.
  parser.feed('\n\n')
  return isReadable ? gathered : null
}

function readWhole(bytes: Buffer): ModelReply | null {
  const gathered: Gathered = { text: '', reasoning: '', calls: [] }
  return add(parseJson(bytes.toString('utf8')), gathered) ? gathered : null
}

function add(value: unknown, gathered: Gathered): boolean {
  const parsed = Choices.safeParse(value)
  if (!parsed.success) return false
  for (const { delta, message } of parsed.data.choices ?? []) {
    const piece = delta ?? message
    if (!piece) continue
    gathered.text += piece.content ?? ''
    gathered.reasoning += piece.reasoning_content ?? piece.reasoning ?? ''
    for (const [at, call] of (piece.tool_calls ?? []).entries()) addCall(call, at, gathered.calls)
  }
  return true
}

/** By index or position: fragments of several calls may alternate. */
function addCall(
  { index, function: called }: z.infer<typeof CallPiece>,
  at: number,
  calls: Gathered['calls'],
): void {
  const place = index ?? at
  while (calls.length <= place) calls.push({ name: '', arguments: '' })
  const call = calls[place]
  if (call === undefined) return
  call.name += called?.name ?? ''
  call.arguments += called?.arguments ?? ''
}
