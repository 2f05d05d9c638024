/**
 * Where and how traces are exported, from the standard variables of OpenTelemetry. A variable that cannot be used is
 * named in a note, never with its value, which may hold a key.
 */
import { Secret } from '../keys/secret.ts'
import type { Attributes } from './span.ts'

export type Environment = Readonly<Record<string, string | undefined>>

/** Which runs are exported, by their trace id. */
export interface Sampler {
  /** From 0 to 1. */
  readonly ratio: number
}

export interface TraceSettings {
  /** Of the collector, without user and password. */
  readonly url: string
  /** Where to change it. */
  readonly urlSetting: string
  /** Lower-case names; the values may be keys. */
  readonly headers: ReadonlyMap<string, Secret>
  readonly protocol: 'http/protobuf' | 'http/json'
  readonly isCompressed: boolean
  /** For one request. */
  readonly timeoutMs: number
  readonly sampler: Sampler
  /** Attributes of the process that makes the spans. */
  readonly resource: Attributes
  /** Whether spans hold prompts, answers, arguments and outputs. */
  readonly hasContent: boolean
}

export interface TraceSettingsResult {
  /** Null: nothing is exported. */
  readonly settings: TraceSettings | null
  /** Problems, for people; each names its variable. */
  readonly notes: readonly string[]
}

const defaultTimeoutMs = 10_000
/** The exporter sets these itself, or HTTP does. */
const ownHeaders: ReadonlySet<string> = new Set([
  'connection',
  'content-encoding',
  'content-length',
  'content-type',
  'expect',
  'host',
  'keep-alive',
  'transfer-encoding',
  'upgrade',
])

/** @param version of this package */
export function readTraceSettings(env: Environment, version: string): TraceSettingsResult {
  const notes: string[] = []
  const read = new Variables(env, (note) => notes.push(note))
  const none = { settings: null, notes }
  if (read.isTrue('OTEL_SDK_DISABLED') || read.exportsElsewhere()) return none
  const endpoint = read.endpoint()
  const protocol = endpoint && read.protocol()
  if (!endpoint || !protocol) return none
  const headers = read.headers()
  if (endpoint.authorization !== null && !headers.has('authorization'))
    headers.set('authorization', endpoint.authorization)
  const settings: TraceSettings = {
    url: endpoint.url,
    urlSetting: endpoint.setting,
    headers,
    protocol,
    isCompressed: read.isCompressed(),
    timeoutMs: read.timeoutMs(),
    sampler: read.sampler(),
    resource: read.resource(version),
    hasContent: read.hasContent(),
  }
  return { settings, notes }
}

class Variables {
  readonly #env: Environment
  readonly #note: (note: string) => void

  constructor(env: Environment, note: (note: string) => void) {
    this.#env = env
    this.#note = note
  }

  /** An empty variable counts as unset. */
  #text(name: string): string | undefined {
    return this.#env[name]?.trim() || undefined
  }

  /** The variable of traces, or else the one of all signals. */
  #ofTraces(suffix: string): { readonly name: string; readonly text: string } | undefined {
    for (const name of [`OTEL_EXPORTER_OTLP_TRACES_${suffix}`, `OTEL_EXPORTER_OTLP_${suffix}`]) {
      const text = this.#text(name)
      if (text !== undefined) return { name, text }
    }
    return undefined
  }

  /** Only `true` is true. */
  isTrue(name: string): boolean {
    return this.#text(name)?.toLowerCase() === 'true'
  }

  exportsElsewhere(): boolean {
    const text = this.#text('OTEL_TRACES_EXPORTER')
    if (text === undefined) return false
    const names = text.split(',').map((name) => name.trim())
    if (!names.includes('otlp') && !names.includes('none'))
      this.#note('OTEL_TRACES_EXPORTER: expected otlp or none; traces of runs are not exported.')
    return !names.includes('otlp')
  }

  endpoint(): { url: string; setting: string; authorization: Secret | null } | undefined {
    const given = this.#ofTraces('ENDPOINT')
    if (given === undefined) return undefined
    const url = URL.parse(given.text)
    if (url === null || !/^https?:$/.test(url.protocol) || url.hostname === '') {
      this.#note(`${given.name}: expected http:// or https:// and a host; traces of runs are not exported.`)
      return undefined
    }
    if (given.name === 'OTEL_EXPORTER_OTLP_ENDPOINT')
      url.pathname = `${url.pathname.replace(/\/$/, '')}/v1/traces`
    const user = decodeText(`${url.username}:${url.password}`) ?? `${url.username}:${url.password}`
    const authorization = user === ':' ? null : new Secret(`Basic ${Buffer.from(user).toString('base64')}`)
    url.username = ''
    url.password = ''
    url.hash = ''
    return { url: url.href, setting: given.name, authorization }
  }

  protocol(): TraceSettings['protocol'] | undefined {
    const given = this.#ofTraces('PROTOCOL')
    const text = given?.text ?? 'http/protobuf'
    if (text === 'http/protobuf' || text === 'http/json') return text
    this.#note(`${given?.name}: expected http/protobuf or http/json; traces of runs are not exported.`)
    return undefined
  }

  /** Those of traces win over those of all signals. */
  headers(): Map<string, Secret> {
    const headers = new Map<string, Secret>()
    for (const name of ['OTEL_EXPORTER_OTLP_HEADERS', 'OTEL_EXPORTER_OTLP_TRACES_HEADERS']) {
      for (const [key, value] of this.#pairs(name)) {
        const header = key.toLowerCase()
        const isUsable = /^[!#$%&'*+.^_`|~0-9a-z-]+$/.test(header) && /^[\t\x20-\x7e\x80-\xff]+$/.test(value)
        if (isUsable && !ownHeaders.has(header)) headers.set(header, new Secret(value))
        else this.#note(`${name}: a header cannot be used and is not sent; expected name=value,name=value.`)
      }
    }
    return headers
  }

  /** `key=value,key=value` with percent-encoded values. One that is wrong voids all. */
  #pairs(name: string): [string, string][] {
    const entries = (this.#text(name) ?? '').split(',').filter((entry) => entry.trim() !== '')
    const pairs: [string, string][] = []
    for (const entry of entries) {
      const [, key = '', encoded = ''] = /^\s*([^=\s]+)\s*=(.*)$/s.exec(entry) ?? []
      const value = decodeText(encoded.trim())
      if (key === '' || value === undefined) {
        this.#note(`${name}: expected key=value,key=value with percent-encoded values; it is ignored.`)
        return []
      }
      pairs.push([key, value])
    }
    return pairs
  }

  isCompressed(): boolean {
    const given = this.#ofTraces('COMPRESSION')
    if (given !== undefined && given.text !== 'gzip' && given.text !== 'none')
      this.#note(`${given.name}: expected gzip or none; it is ignored.`)
    return given?.text === 'gzip'
  }

  timeoutMs(): number {
    const given = this.#ofTraces('TIMEOUT')
    if (given === undefined) return defaultTimeoutMs
    const ms = Number(given.text)
    if (Number.isSafeInteger(ms) && ms >= 1 && ms <= 600_000) return ms
    this.#note(`${given.name}: expected milliseconds from 1 to 600000; it is ignored.`)
    return defaultTimeoutMs
  }

  /** A run has no parent, so the samplers by parent are those of the root. */
  sampler(): Sampler {
    const name = this.#text('OTEL_TRACES_SAMPLER') ?? 'parentbased_always_on'
    switch (name) {
      case 'always_on':
      case 'parentbased_always_on':
        return { ratio: 1 }
      case 'always_off':
      case 'parentbased_always_off':
        return { ratio: 0 }
      case 'traceidratio':
      case 'parentbased_traceidratio':
        return { ratio: this.#ratio() }
      default:
        this.#note(
          'OTEL_TRACES_SAMPLER: expected always_on, always_off, traceidratio or one of these with parentbased_; it is ignored.',
        )
        return { ratio: 1 }
    }
  }

  #ratio(): number {
    const text = this.#text('OTEL_TRACES_SAMPLER_ARG') ?? '1'
    const ratio = /^[\d.eE+-]+$/.test(text) ? Number(text) : Number.NaN
    if (ratio >= 0 && ratio <= 1) return ratio
    this.#note('OTEL_TRACES_SAMPLER_ARG: expected a number from 0 to 1; it is ignored.')
    return 1
  }

  resource(version: string): Attributes {
    const given = Object.fromEntries(this.#pairs('OTEL_RESOURCE_ATTRIBUTES'))
    const service = this.#text('OTEL_SERVICE_NAME')
    return {
      'service.name': 'caisson',
      'service.version': version,
      ...given,
      ...(service === undefined ? {} : { 'service.name': service }),
      'telemetry.sdk.name': 'caisson',
      'telemetry.sdk.language': 'nodejs',
      'telemetry.sdk.version': version,
    }
  }

  /** `true`, or the newer words of the same variable that mean spans. */
  hasContent(): boolean {
    const text = this.#text('OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT')?.toLowerCase()
    return text === 'true' || text === 'span_only' || text === 'span_and_event'
  }
}

/** Percent-decoded text; undefined for an invalid one. */
function decodeText(text: string): string | undefined {
  try {
    return decodeURIComponent(text)
  } catch {
    return undefined
  }
}

/**
 * Whether the trace is exported: its last 56 bits, which are random, against the ratio. The same for every process that
 * traces the run, and for every service that samples so.
 */
export function isSampled(traceId: string, { ratio }: Sampler): boolean {
  if (ratio >= 1) return true
  const threshold = BigInt(Math.round((1 - ratio) * 2 ** 56))
  return BigInt(`0x${traceId.slice(-14)}`) >= threshold
}
