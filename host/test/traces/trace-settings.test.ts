import { describe, expect, it } from 'vitest'
import { traceIdOf } from '../../traces/span.ts'
import { isSampled, readTraceSettings, type TraceSettings } from '../../traces/trace-settings.ts'

const endpoint = { OTEL_EXPORTER_OTLP_ENDPOINT: 'http://collector.example:4318' }

/** The settings, where no variable has a problem. */
function settingsOf(env: Record<string, string>): TraceSettings {
  const { settings, notes } = readTraceSettings({ ...endpoint, ...env }, '1.2.3')
  expect(notes).toEqual([])
  if (settings === null) throw new Error('nothing is exported')
  return settings
}

const headersOf = ({ headers }: TraceSettings): Record<string, string> =>
  Object.fromEntries([...headers].map(([name, value]) => [name, value.reveal()]))

describe('the settings of traces', () => {
  it('are none without an endpoint, and when OpenTelemetry is disabled or exports otherwise [R.04]', () => {
    for (const env of [
      {},
      { OTEL_EXPORTER_OTLP_ENDPOINT: '', OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: ' ' },
      { ...endpoint, OTEL_SDK_DISABLED: 'TRUE' },
      { ...endpoint, OTEL_TRACES_EXPORTER: 'none' },
    ])
      expect(readTraceSettings(env, '1.2.3')).toEqual({ settings: null, notes: [] })
    expect(settingsOf({ OTEL_SDK_DISABLED: '1', OTEL_TRACES_EXPORTER: 'otlp' }).url).toContain('collector')
  })

  it.each([
    [{ OTEL_EXPORTER_OTLP_ENDPOINT: 'http://a.example:4318' }, 'http://a.example:4318/v1/traces'],
    [{ OTEL_EXPORTER_OTLP_ENDPOINT: 'https://a.example/otlp/' }, 'https://a.example/otlp/v1/traces'],
    [{ OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: 'http://b.example:4318' }, 'http://b.example:4318/'],
    [{ OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: 'http://b.example/x?y=z' }, 'http://b.example/x?y=z'],
  ])('have the address of %j [R.04]', (env, url) => {
    expect(settingsOf(env).url).toBe(url)
  })

  it('send what the address has of user and password as a header, and show it nowhere [R.04]', () => {
    const settings = settingsOf({ OTEL_EXPORTER_OTLP_ENDPOINT: 'https://ann:p%40ss@a.example' })
    expect(settings.url).toBe('https://a.example/v1/traces')
    expect(headersOf(settings)).toEqual({ authorization: `Basic ${btoa('ann:p@ss')}` })
    expect(JSON.stringify([...settings.headers])).not.toContain(btoa('ann:p@ss'))
  })

  it('have the headers of all signals and those of traces, decoded [R.04]', () => {
    const settings = settingsOf({
      OTEL_EXPORTER_OTLP_HEADERS: 'Authorization=Bearer%20abc=, x-tenant = one ,',
      OTEL_EXPORTER_OTLP_TRACES_HEADERS: 'x-tenant=two',
    })
    expect(headersOf(settings)).toEqual({ authorization: 'Bearer abc=', 'x-tenant': 'two' })
  })

  it('have protocol, compression, time limit, content and sampler as the variables say [R.04]', () => {
    expect(settingsOf({})).toMatchObject({
      protocol: 'http/protobuf',
      isCompressed: false,
      timeoutMs: 10_000,
      sampler: { ratio: 1 },
      hasContent: false,
    })
    expect(
      settingsOf({
        OTEL_EXPORTER_OTLP_PROTOCOL: 'http/protobuf',
        OTEL_EXPORTER_OTLP_TRACES_PROTOCOL: 'http/json',
        OTEL_EXPORTER_OTLP_COMPRESSION: 'gzip',
        OTEL_EXPORTER_OTLP_TIMEOUT: '2500',
        OTEL_TRACES_SAMPLER: 'parentbased_traceidratio',
        OTEL_TRACES_SAMPLER_ARG: '0.25',
        OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT: 'True',
      }),
    ).toMatchObject({
      protocol: 'http/json',
      isCompressed: true,
      timeoutMs: 2_500,
      sampler: { ratio: 0.25 },
      hasContent: true,
    })
    expect(settingsOf({ OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT: 'false' }).hasContent).toBe(false)
  })

  it('name the service and the resource [R.04]', () => {
    const sdk = {
      'service.version': '1.2.3',
      'telemetry.sdk.name': 'caisson',
      'telemetry.sdk.language': 'nodejs',
      'telemetry.sdk.version': '1.2.3',
    }
    expect(settingsOf({}).resource).toEqual({ ...sdk, 'service.name': 'caisson' })
    const attributes = 'service.name=a,deployment.environment.name=test%2Cstage,'
    expect(settingsOf({ OTEL_RESOURCE_ATTRIBUTES: attributes }).resource).toEqual({
      ...sdk,
      'service.name': 'a',
      'deployment.environment.name': 'test,stage',
    })
    expect(
      settingsOf({ OTEL_RESOURCE_ATTRIBUTES: attributes, OTEL_SERVICE_NAME: 'b' }).resource['service.name'],
    ).toBe('b')
  })

  it.each([
    ['OTEL_EXPORTER_OTLP_ENDPOINT', 'ftp://sk-secret@a.example', null],
    ['OTEL_EXPORTER_OTLP_ENDPOINT', 'sk-secret', null],
    ['OTEL_EXPORTER_OTLP_TRACES_ENDPOINT', 'http://', null],
    ['OTEL_EXPORTER_OTLP_PROTOCOL', 'grpc', null],
    ['OTEL_EXPORTER_OTLP_TRACES_PROTOCOL', 'sk-secret', null],
    ['OTEL_TRACES_EXPORTER', 'zipkin', null],
    ['OTEL_EXPORTER_OTLP_HEADERS', 'sk-secret', { headers: new Map() }],
    ['OTEL_EXPORTER_OTLP_HEADERS', 'authorization=%zz-sk-secret', { headers: new Map() }],
    ['OTEL_EXPORTER_OTLP_HEADERS', 'a b=sk-secret', { headers: new Map() }],
    ['OTEL_EXPORTER_OTLP_HEADERS', 'x-key=sk-secret%0d%0ax-more: 1', { headers: new Map() }],
    ['OTEL_EXPORTER_OTLP_HEADERS', 'content-length=7', { headers: new Map() }],
    ['OTEL_EXPORTER_OTLP_COMPRESSION', 'zstd', { isCompressed: false }],
    ['OTEL_EXPORTER_OTLP_TIMEOUT', '-1', { timeoutMs: 10_000 }],
    ['OTEL_EXPORTER_OTLP_TRACES_TIMEOUT', 'soon', { timeoutMs: 10_000 }],
    ['OTEL_TRACES_SAMPLER', 'jaeger_remote', { sampler: { ratio: 1 } }],
    ['OTEL_RESOURCE_ATTRIBUTES', 'a=%zz', { resource: { 'service.name': 'caisson' } }],
  ])('name %s with %j in a note, without its value [R.04]', (name, value, expected) => {
    const { settings, notes } = readTraceSettings({ ...endpoint, [name]: value }, '1.2.3')
    expect(notes).toEqual([expect.stringContaining(name)])
    expect(notes.join()).toMatch(/expected .*(?:not exported|ignored|not sent)|not sent; expected/)
    expect(notes.join()).not.toContain('sk-secret')
    if (expected === null) expect(settings).toBeNull()
    else expect(settings).toMatchObject(expected)
  })

  it.each(['2', '-0.1', 'half', '0x1'])('refuse a ratio of %s [R.04]', (text) => {
    const env = { ...endpoint, OTEL_TRACES_SAMPLER: 'traceidratio', OTEL_TRACES_SAMPLER_ARG: text }
    const { settings, notes } = readTraceSettings(env, '1.2.3')
    expect(settings?.sampler).toEqual({ ratio: 1 })
    expect(notes).toEqual([expect.stringContaining('OTEL_TRACES_SAMPLER_ARG')])
  })
})

describe('the sampler', () => {
  const ids = Array.from({ length: 4_000 }, (_, at) => traceIdOf(`run-${at}`))
  const share = (ratio: number): number => ids.filter((id) => isSampled(id, { ratio })).length / ids.length

  it('takes all, none, or about the share that is asked for [R.04]', () => {
    expect(share(1)).toBe(1)
    expect(share(0)).toBe(0)
    expect(Math.abs(share(0.25) - 0.25)).toBeLessThan(0.03)
  })

  it('decides by the trace id alone, and takes with a greater share what it took with a smaller [R.04]', () => {
    expect(isSampled(`${'0'.repeat(18)}80000000000000`, { ratio: 0.5 })).toBe(true)
    expect(isSampled(`${'f'.repeat(18)}7fffffffffffff`, { ratio: 0.5 })).toBe(false)
    for (const id of ids) if (isSampled(id, { ratio: 0.1 })) expect(isSampled(id, { ratio: 0.2 })).toBe(true)
  })
})
