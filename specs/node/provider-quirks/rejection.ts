/**
 * Reads from a model server's 400 or 422 what it rejected: a field, the length, images, several calls in a turn, tools,
 * calls without the reasoning before them. Wording differs by server, so the result is a guess that one more request confirms
 * or refutes.
 */
import { parseJson } from './provider-error.ts'

/** Fields that a request can omit. Never model, messages, tools. */
export const optionalFields = [
  'stream_options',
  'stream',
  'temperature',
  'top_p',
  'seed',
  'stop',
  'reasoning_effort',
  'chat_template_kwargs',
  /** Tokens of a model's reasoning. */
  'reasoning_budget',
  'response_format',
  'tool_choice',
  /** `strict` of a tool's function. */
  'strict',
  /** Of an assistant's message. */
  'reasoning_content',
  /** Sent as `max_completion_tokens` instead. */
  'max_tokens',
  /** Of a request for embeddings. */
  'input_type',
  'truncate',
  'encoding_format',
] as const
export type OptionalField = (typeof optionalFields)[number]

export type RequestRejection =
  | { readonly kind: 'fields'; readonly fields: readonly OptionalField[] }
  /** `promptTokens`: length of the conversation by the server's count; null if not reported. */
  | { readonly kind: 'context'; readonly contextTokens: number; readonly promptTokens: number | null }
  | { readonly kind: 'output'; readonly maxOutputTokens: number }
  /** The model takes only so many images in a request, 0 for none. */
  | { readonly kind: 'images'; readonly maxImages: number }
  | { readonly kind: 'single_calls' }
  | { readonly kind: 'tools' }
  | { readonly kind: 'reasoning_required' }

/** Other names that servers use for a field. */
const aliases: Partial<Record<OptionalField, readonly string[]>> = {
  stream_options: ['include_usage'],
  chat_template_kwargs: [
    'chat_template',
    'enable_thinking',
    'thinking',
    'low_effort',
    'force_nonempty_content',
  ],
  response_format: ['json_schema', 'json_object'],
}

const rejected =
  /extra[_ ](?:inputs|fields|forbidden)|unknown|unrecogni[sz]ed|unsupported|not (?:currently )?supported|(?:does|do)(?: not|n't) support|not permitted|not allowed|not a valid|invalid (?:parameter|field|argument|property|name)|unexpected|cannot find field|forbidden|not implemented|not available/i
const wrongValue =
  /must be (?!satisfied)|too (?:long|large|many|small|short)|out of range|greater than|less than|at least|at most|should be|expected/i
const toolsRejected =
  /(?:does|do)(?: not|n't) support (?:tools?|function)|tool (?:use|calling|choice)\b.{0,80}(?:not (?:been )?(?:enabled|supported)|unsupported)|no endpoints found that support tool|--enable-auto-tool-choice|tools? (?:is|are) not supported/i
/** Words of OpenAI and Azure, vLLM, llama.cpp, Groq, and of schemas that know only text. */
const imagesRejected =
  /image_url is only supported by certain models|is not a multimodal model|image input is not supported|(?:does|do)(?: not|n't) support (?:images?|vision)\b|support image input|unsupported content part type: \W{0,4}image_url|message\w*\W{1,4}\d+\W{1,4}content'?\W{0,4}(?: : value)? must be a string|list\[TextContentPart\]/i
const bodyMaxChars = 8_192

/**
 * @param body unmodified body of the answer
 * @param sent the request's fields among {@link optionalFields}
 */
export function readRejection(
  status: number,
  body: string,
  sent: ReadonlySet<OptionalField>,
): RequestRejection | null {
  if (status !== 400 && status !== 422) return null
  const { text, named } = readWords(body.slice(0, bodyMaxChars))
  const length = readLength(text)
  if (length !== null) return length
  const images = readImages(text)
  if (images !== null) return images
  if (/only supports? single tool[- ]calls?/i.test(text)) return { kind: 'single_calls' }
  // A wrong value is the client's error: the field itself must not be remembered as rejected.
  const isRejection = rejected.test(text) && !wrongValue.test(text)
  const isNamed = (field: OptionalField): boolean =>
    [field, ...(aliases[field] ?? [])].some((word) => named.has(word) || namesField(text, word))
  const fields = isRejection ? [...sent].filter(isNamed) : []
  const isToolsField = ['tools', 'functions'].some((word) => named.has(word))
  if (toolsRejected.test(text) || (isToolsField && isRejection)) return { kind: 'tools' }
  if (!sent.has('reasoning_content') && /\breasoning_content\b/.test(text))
    return { kind: 'reasoning_required' }
  if (fields.length > 0) return { kind: 'fields', fields }
  // Something was too much, and the server does not say what: this is the most likely cause.
  const isUnnamed = named.size === 0 && /extra (?:inputs|fields)|unrecogni[sz]ed|not permitted/i.test(text)
  return isUnnamed && sent.has('stream_options') ? { kind: 'fields', fields: ['stream_options'] } : null
}

/** A number is vLLM's limit of images. */
function readImages(text: string): RequestRejection | null {
  const most = number(/at most (\d{1,4}) image/i.exec(text)?.[1])
  if (most !== null) return { kind: 'images', maxImages: most }
  return imagesRejected.test(text) ? { kind: 'images', maxImages: 0 } : null
}

function readLength(text: string): RequestRejection | null {
  const context = number(/maximum context length (?:is|of)\s+(\d{1,9})\b/i.exec(text)?.[1])
  if (context !== null) {
    const prompt = /\b(\d{1,9})\s+(?:input tokens|tokens from the input|in the (?:messages|prompt))/i.exec(
      text,
    )?.[1]
    return { kind: 'context', contextTokens: context, promptTokens: number(prompt) }
  }
  const tooLong =
    /prompt is too long:\s*(\d{1,9}) tokens > (\d{1,9})/i.exec(text) ??
    /input token count \(?(\d{1,9})\)? exceeds the maximum number of tokens allowed \(?(\d{1,9})/i.exec(text)
  if (tooLong !== null)
    return { kind: 'context', contextTokens: Number(tooLong[2]), promptTokens: Number(tooLong[1]) }
  const together = /exceed context limit:\s*(\d{1,9})\s*\+\s*\d{1,9}\s*>\s*(\d{1,9})/i.exec(text)
  if (together !== null)
    return { kind: 'context', contextTokens: Number(together[2]), promptTokens: Number(together[1]) }
  const ofModel = /max_tokens:\s*\d{1,9}\s*>\s*(\d{2,9})\b/i.exec(text)?.[1]
  if (ofModel !== undefined) return { kind: 'output', maxOutputTokens: Number(ofModel) }
  const isOutput = /max(?:_completion|imum)?[_ ](?:tokens|output)/i.test(text)
  const most =
    /(?:at most|less than or equal to|<=|cannot exceed|must not exceed|maximum(?: allowed)?(?: value)?(?: is| of)?:?)\s*`?(\d{2,9})\b/i
  const output = isOutput ? number(most.exec(text)?.[1]) : null
  return output === null ? null : { kind: 'output', maxOutputTokens: output }
}

/**
 * Whether a text speaks of a field. A name with an underscore is no other word; an ordinary word counts in quotes, behind
 * `parameter` and the like, at the end of a path such as `body -> stop`, or before "is not supported".
 */
function namesField(text: string, word: string): boolean {
  const whole = `(?<![\\w-])${word}(?![\\w-])`
  if (word.includes('_')) return new RegExp(whole).test(text)
  const near = [
    `['"\`]${word}['"\`]`,
    `(?:parameter|field|argument|property|name|key|input)s?:?\\s+${word}(?![\\w-])`,
    `(?:->|body\\.)\\s*${word}(?![\\w-])`,
    `(?:^|[:.]\\s*)${word} (?:is not|isn't|does not|doesn't)`,
  ]
  return new RegExp(near.join('|'), 'im').test(text)
}

/** The words of an error, without what it repeats of the request, and the fields that it names by itself. */
function readWords(body: string): { text: string; named: ReadonlySet<string> } {
  const named = new Set<string>()
  const value = parseJson(body)
  const words: string[] = []
  const visit = (part: unknown, depth: number): void => {
    if (depth > 6) return
    if (typeof part === 'string') words.push(part)
    else if (Array.isArray(part)) for (const item of part.slice(0, 20)) visit(item, depth + 1)
    else if (typeof part === 'object' && part !== null) visitFields(part, depth)
  }
  const visitFields = (part: object, depth: number): void => {
    for (const [name, inner] of Object.entries(part)) {
      if (name === 'param' && typeof inner === 'string') named.add(lastName(inner))
      else if (name === 'loc' && Array.isArray(inner)) addPath(inner, named)
      else if (name !== 'input' && name !== 'instance' && name !== 'ctx') visit(inner, depth + 1)
    }
  }
  if (value === undefined) words.push(body)
  else visit(value, 0)
  // vLLM puts its list of problems into the message as Python writes it.
  const text = words.join('\n')
  for (const [, path] of text.matchAll(/'loc': \(([^)]{0,200})\)/g)) {
    addPath(
      (path ?? '').split(',').map((part) => part.trim().replaceAll("'", '')),
      named,
    )
  }
  return { text: text.replaceAll(/'input': .{0,2000}?(?=[}\]]|, '(?:type|loc|msg|ctx|url)')/gs, ''), named }
}

/** The first name below the body, and the last one: `stream_options` of `body, stream_options, include_usage`. */
function addPath(path: readonly unknown[], named: Set<string>): void {
  const names = path.filter(
    (part) => typeof part === 'string' && part !== 'body' && !/^\d*$/.test(part),
  ) as string[]
  for (const name of [names[0], names.at(-1)]) if (name !== undefined) named.add(name)
}

/** `include_usage` of `stream_options.include_usage`. */
function lastName(path: string): string {
  return path.split(/[.[\]]+/).findLast((part) => part !== '' && !/^\d+$/.test(part)) ?? ''
}

function number(text: string | undefined): number | null {
  return text === undefined ? null : Number(text)
}
