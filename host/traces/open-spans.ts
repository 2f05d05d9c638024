/** The spans of one run that have begun and not ended. Bounded: a guest that ends none costs no more memory. */
import { type Attributes, type AttributeValue, type SpanContext, spanIdOf, type TraceSpan } from './span.ts'

/** A span that has begun. */
export interface OpenSpan {
  readonly spanId: string
  /** Absent: the root of the trace. */
  readonly parentSpanId?: string
  readonly name: string
  readonly kind: TraceSpan['kind']
  readonly startMs: number
  readonly attributes: Attributes
  readonly links?: readonly SpanContext[]
}

/** How a span ended. */
export interface SpanEnd {
  readonly endMs: number
  readonly attributes?: Attributes
  /** `error.type`. Absent: it succeeded. */
  readonly error?: string | undefined
  readonly message?: string | undefined
}

const nameMaxChars = 200
const textMaxChars = 500
const openMaxCount = 1_024

/** A bounded map of open spans, by whatever identifies them in events. */
export class OpenSpans<T extends OpenSpan = OpenSpan> {
  readonly #byKey = new Map<string, T>()

  /** @returns false when there is one of this key, or as many as may be are open; the span is then not traced */
  add(key: string, span: T): boolean {
    if (this.#byKey.has(key) || this.#byKey.size >= openMaxCount) return false
    this.#byKey.set(key, span)
    return true
  }

  get(key: string): T | undefined {
    return this.#byKey.get(key)
  }

  values(): Iterable<T> {
    return this.#byKey.values()
  }

  take(key: string): T | undefined {
    const span = this.#byKey.get(key)
    this.#byKey.delete(key)
    return span
  }

  /** Takes those out that `is` accepts, the newest first, so that children come before their parents. */
  takeAll(is: (span: T, key: string) => boolean = () => true): T[] {
    const taken = [...this.#byKey].filter(([key, span]) => is(span, key)).reverse()
    for (const [key] of taken) this.#byKey.delete(key)
    return taken.map(([, span]) => span)
  }
}

/** Begins spans of one run. */
export function beginSpan(
  { runId, seq, at }: { readonly runId: string; readonly seq: number; readonly at: number },
  span: Pick<OpenSpan, 'name' | 'kind' | 'attributes'> & { readonly parentSpanId: string },
): OpenSpan {
  return { ...span, name: nameOf(span.name), spanId: spanIdOf(runId, seq), startMs: at }
}

export function endSpan(traceId: string, open: OpenSpan, end: SpanEnd): TraceSpan {
  const { spanId, parentSpanId, name, kind, startMs, attributes, links = [] } = open
  const { error, message } = end
  return {
    traceId,
    spanId,
    ...(parentSpanId === undefined ? {} : { parentSpanId }),
    name,
    kind,
    startMs,
    // The clock of the machine may have been set back.
    endMs: Math.max(startMs, end.endMs),
    attributes: { ...attributes, ...end.attributes, ...attributesOf({ 'error.type': error }) },
    isError: error !== undefined,
    ...(error === undefined || message === undefined ? {} : { message }),
    links,
  }
}

/** The defined ones, as plain text: without control characters and lone surrogates, at most 500 characters each. */
export function attributesOf(values: Readonly<Record<string, AttributeValue | undefined>>): Attributes {
  const defined = Object.entries(values).flatMap(([key, value]) =>
    value === undefined ? [] : [[key, boundValue(value)] as const],
  )
  return Object.fromEntries(defined)
}

function boundValue(value: AttributeValue): AttributeValue {
  if (typeof value === 'string') return plainText(value, textMaxChars)
  return typeof value === 'object' ? value.map((text) => plainText(text, textMaxChars)) : value
}

function nameOf(text: string): string {
  return plainText(text, nameMaxChars)
}

function plainText(text: string, maxChars: number): string {
  return text
    .slice(0, maxChars)
    .toWellFormed()
    .replaceAll(/\p{Cc}/gu, ' ')
}
