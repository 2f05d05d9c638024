/**
 * Strict schema of a guest's chat request. Refuses any unlisted field by name. Format: OpenAI's chat completions as
 * used by NVIDIA NIM, vLLM, llama.cpp and Ollama.
 */

import * as z from 'zod'
import type { Result } from './error.ts'
import { readImageUrl } from './image.ts'
import { describeIssues, plainMessages } from './issue-text.ts'

/** Maximum request body in bytes; NVIDIA's own limit is 5 MiB. */
export const requestMaxBytes = 5 * 1024 * 1024
/** Maximum nesting of objects and arrays in a request. */
const requestMaxDepth = 48
/** Maximum output tokens of one request. */
export const outputMaxTokens = 32_768
/** Default output tokens: without a number some models answer nothing. */
export const outputDefaultTokens = 16_384

const Name = z.string().regex(/^[A-Za-z0-9_-]{1,64}$/, 'expected 1 to 64 of A-Z a-z 0-9 _ -')
const CallId = z.string().min(1).max(128)

const ToolCall = z.strictObject({
  id: CallId,
  type: z.literal('function'),
  function: z.strictObject({ name: Name, arguments: z.string() }),
})
export type CompletionToolCall = z.infer<typeof ToolCall>
const TextPart = z.strictObject({ type: z.literal('text'), text: z.string() })
const ImagePart = z.strictObject({
  type: z.literal('image_url'),
  image_url: z.strictObject({
    url: z.string().superRefine((url, context) => {
      const image = readImageUrl(url)
      if (!image.ok) context.addIssue({ code: 'custom', message: image.error })
    }),
    detail: z.enum(['auto', 'low', 'high']).optional(),
  }),
})
const ContentPart = z.discriminatedUnion('type', [TextPart, ImagePart])
/** A part of a user's message: text, or an image as a data URL. */
export type CompletionPart = z.infer<typeof ContentPart>

const Message = z.discriminatedUnion('role', [
  z.strictObject({ role: z.literal('system'), content: z.string() }),
  z.strictObject({
    role: z.literal('user'),
    content: z.union([z.string(), z.array(ContentPart).min(1).max(64)]),
  }),
  z.strictObject({
    role: z.literal('assistant'),
    content: z.string().nullish(),
    reasoning_content: z.string().nullish(),
    tool_calls: z.array(ToolCall).min(1).max(128).optional(),
  }),
  z.strictObject({ role: z.literal('tool'), tool_call_id: CallId, content: z.string() }),
])
const JsonObject = z.record(z.string(), z.unknown())
const ToolDefinition = z.strictObject({
  type: z.literal('function'),
  function: z.strictObject({
    name: Name,
    description: z.string().max(32_768).optional(),
    parameters: JsonObject.optional(),
    strict: z.boolean().optional(),
  }),
})

export const CompletionRequest = z.strictObject({
  /** Name of a model that the run allows for steps; another is refused. Ignored where it allows none. */
  model: z.string().max(500).optional(),
  messages: z.array(Message).min(1).max(10_000),
  tools: z.array(ToolDefinition).min(1).max(256).optional(),
  tool_choice: z
    .union([
      z.enum(['none', 'auto', 'required']),
      z.strictObject({ type: z.literal('function'), function: z.strictObject({ name: Name }) }),
    ])
    .optional(),
  stream: z.boolean().optional(),
  /** Ignored: the gateway asks for usage itself. */
  stream_options: z.strictObject({ include_usage: z.boolean().optional() }).nullish(),
  max_tokens: z.int().min(1).optional(),
  temperature: z.number().min(0).max(2).optional(),
  top_p: z.number().min(0).max(1).optional(),
  seed: z.int().optional(),
  stop: z.union([z.string().max(500), z.array(z.string().max(500)).max(8)]).optional(),
  reasoning_effort: z.enum(['none', 'minimal', 'low', 'medium', 'high']).optional(),
  chat_template_kwargs: z
    .strictObject({
      enable_thinking: z.boolean().optional(),
      thinking: z.boolean().optional(),
      low_effort: z.boolean().optional(),
      force_nonempty_content: z.boolean().optional(),
    })
    .optional(),
  response_format: z
    .discriminatedUnion('type', [
      z.strictObject({ type: z.enum(['text', 'json_object']) }),
      z.strictObject({
        type: z.literal('json_schema'),
        json_schema: z.strictObject({ name: Name, schema: JsonObject, strict: z.boolean().optional() }),
      }),
    ])
    .optional(),
})
export type CompletionRequest = z.infer<typeof CompletionRequest>
export type CompletionMessage = z.infer<typeof Message>

/** The text of a message's content, without its images. */
export function contentText(content: CompletionMessage['content']): string {
  if (!Array.isArray(content)) return content ?? ''
  return content.flatMap((part) => (part.type === 'text' ? [part.text] : [])).join('\n\n')
}

/** Reads a request body of the guest; the error names the field. */
export function parseCompletionRequest(body: Uint8Array): Result<CompletionRequest, string> {
  let text: string
  try {
    text = new TextDecoder('utf-8', { fatal: true }).decode(body)
  } catch {
    return { ok: false, error: 'the body is not UTF-8' }
  }
  if (nestsDeeperThan(text, requestMaxDepth)) {
    return { ok: false, error: `the body nests deeper than ${requestMaxDepth} levels` }
  }
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch {
    return { ok: false, error: 'the body is not JSON' }
  }
  const parsed = CompletionRequest.safeParse(value, plainMessages)
  if (parsed.success) return { ok: true, value: parsed.data }
  return { ok: false, error: describeIssues(parsed.error, { root: 'body' }) }
}

/** Counts brackets outside strings; meaningless for invalid JSON, which the parser refuses. */
function nestsDeeperThan(text: string, depth: number): boolean {
  let level = 0
  let inString = false
  for (let at = 0; at < text.length; at += 1) {
    const code = text.charCodeAt(at)
    if (inString) {
      if (code === 0x5c) at += 1
      else if (code === 0x22) inString = false
    } else if (code === 0x22) inString = true
    else if (code === 0x7b || code === 0x5b) {
      level += 1
      if (level > depth) return true
    } else if (code === 0x7d || code === 0x5d) level -= 1
  }
  return false
}
