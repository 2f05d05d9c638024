/**
 * A finished span as plain data. Its ids follow from the run and its journal, so that whoever folds the same events makes
 * the same spans.
 */
import { createHash } from 'node:crypto'

export type AttributeValue = string | number | boolean | readonly string[]
export type Attributes = Readonly<Record<string, AttributeValue>>

export interface SpanContext {
  /** 32 hexadecimal digits. */
  readonly traceId: string
  /** 16 hexadecimal digits. */
  readonly spanId: string
}

export interface TraceSpan extends SpanContext {
  /** Absent: the root of its trace. */
  readonly parentSpanId?: string
  readonly name: string
  /** `client` for requests to another process. */
  readonly kind: 'internal' | 'client'
  /** ms since 1970. */
  readonly startMs: number
  readonly endMs: number
  readonly attributes: Attributes
  readonly isError: boolean
  /** What failed, for people; content, so usually absent. */
  readonly message?: string
  /** Spans of other traces that this one follows. */
  readonly links: readonly SpanContext[]
}

/** The trace of a run: the first half of the SHA-256 of its id. */
export function traceIdOf(runId: string): string {
  return digestOf(runId).slice(0, 32)
}

/** The span of the whole run. */
export function rootSpanIdOf(runId: string): string {
  return digestOf(`${runId} root`).slice(0, 16)
}

/** @param seq number of the event that began the span */
export function spanIdOf(runId: string, seq: number): string {
  return digestOf(`${runId} ${seq}`).slice(0, 16)
}

function digestOf(text: string): string {
  return createHash('sha256').update(text).digest('hex')
}
