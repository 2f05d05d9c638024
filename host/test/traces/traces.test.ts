// Runs exported to a real collector on loopback that takes them, and processes that export.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { Feed } from '../../journal/run-feed.ts'
import { directNetwork } from '../../net/network.ts'
import { readTraceSettings } from '../../traces/trace-settings.ts'
import { Traces } from '../../traces/traces.ts'
import { startOtlpReceiver } from '../support/otlp-receiver.ts'
import { closedPort, exporting, exportRun, quick, sorted, steps } from './exporting.ts'
import { journalOf, runEnd, runId, runStart, type Step, spansOf, toolEnd } from './support.ts'

describe('the export of a run', () => {
  it.each([
    ['http/protobuf', 'none', 'application/x-protobuf'],
    ['http/protobuf', 'gzip', 'application/x-protobuf'],
    ['http/json', 'none', 'application/json'],
    ['http/json', 'gzip', 'application/json'],
  ])(
    'gives a collector all its spans, in %s with compression %s [R.04]',
    async (protocol, compression, type) => {
      await using receiver = await startOtlpReceiver()
      const notes = await exportRun(receiver.url, {
        OTEL_EXPORTER_OTLP_PROTOCOL: protocol,
        OTEL_EXPORTER_OTLP_COMPRESSION: compression,
        OTEL_EXPORTER_OTLP_HEADERS: 'x-tenant=one,authorization=Bearer%20abc',
        OTEL_SERVICE_NAME: 'reports',
      })
      expect(notes).toEqual([])
      expect(sorted(receiver.spans())).toEqual(sorted(spansOf(steps)))
      const [first] = receiver.received
      expect(first).toMatchObject({
        path: '/v1/traces',
        scope: { name: 'caisson', version: '1.2.3' },
        resource: { 'service.name': 'reports', 'service.version': '1.2.3' },
        headers: { 'content-type': type, 'x-tenant': 'one', authorization: 'Bearer abc' },
      })
      expect(first?.headers['content-encoding']).toBe(compression === 'gzip' ? 'gzip' : undefined)
      expect(first?.headers['user-agent']).toBe('caisson/1.2.3 (+traces)')
    },
  )

  it('sends batches while the run works, each span once [R.04]', async () => {
    await using receiver = await startOtlpReceiver()
    const { feed, finish } = exporting(receiver.url, {}, { batchMaxSpans: 2 })
    const [last, ...calls] = journalOf([
      [0, runEnd()],
      ...Array.from({ length: 7 }, (_, at): Step => [at, toolEnd(`c${at}`, 'math'), 'root']),
    ])
    for (const line of [...journalOf([[0, runStart()]]), ...calls]) feed.push(line)
    await expect.poll(() => receiver.spans().length).toBe(7)
    expect(receiver.received.map(({ spans }) => spans.length)).toEqual([2, 2, 2, 1])
    if (last !== undefined) feed.push(last)
    await finish()
    expect(receiver.spans().map(({ name }) => name)).toEqual([
      ...Array.from({ length: 7 }, () => 'execute_tool math'),
      'invoke_agent caisson',
    ])
  })

  it('begins with the first event also when it observes late [R.04]', async () => {
    await using receiver = await startOtlpReceiver()
    const settings = readTraceSettings({ OTEL_EXPORTER_OTLP_ENDPOINT: receiver.url }, '1.2.3').settings
    if (settings === null) throw new Error('nothing is exported')
    const traces = new Traces(settings, directNetwork, '1.2.3', quick)
    const feed = new Feed()
    for (const line of journalOf(steps)) feed.push(line)
    feed.end()
    traces.observe(feed, { runId, redact: String, note: () => undefined })
    expect(feed.isWatched).toBe(false)
    await traces.close()
    expect(receiver.spans()).toHaveLength(3)
  })

  it('ends what is open when the run ends without its last event [R.04]', async () => {
    await using receiver = await startOtlpReceiver()
    const { feed, finish } = exporting(receiver.url)
    for (const line of journalOf(steps).slice(0, 5)) feed.push(line)
    await finish()
    const failed = receiver.spans().filter(({ isError }) => isError)
    expect(failed.map(({ name, attributes }) => [name, attributes['error.type']])).toEqual([
      ['execute_tool read_file', 'interrupted'],
      ['invoke_agent caisson', 'interrupted'],
    ])
  })

  it('sends nothing of a run that the sampler leaves out [R.04]', async () => {
    await using receiver = await startOtlpReceiver()
    expect(await exportRun(receiver.url, { OTEL_TRACES_SAMPLER: 'always_off' })).toEqual([])
    expect(receiver.received).toEqual([])
  })

  it('has content when it is asked for, without the keys of the run and of the collector [R.04]', async () => {
    await using receiver = await startOtlpReceiver()
    const env = {
      OTEL_EXPORTER_OTLP_HEADERS: 'authorization=Bearer%20collector-key-1',
      OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT: 'true',
    }
    const { traces, finish } = exporting(receiver.url, env)
    const feed = new Feed()
    const redact = (text: string): string => text.replaceAll('model-key', '[redacted]')
    traces.observe(feed, { runId, redact, note: () => undefined })
    const prompt = 'Use collector-key-1 and model-key'
    for (const line of journalOf([
      [0, runStart({ prompt })],
      [9, runEnd()],
    ]))
      feed.push(line)
    feed.end()
    await finish()
    const messages = receiver.spans().map(({ attributes }) => attributes['gen_ai.input.messages'])
    expect(messages).toContainEqual(expect.stringContaining('Use [redacted] and [redacted]'))
  })
})

describe('a process that exports', () => {
  /** Milliseconds from the end of the run to the end of its process, and what it wrote. */
  async function endOf(url: string): Promise<{ ms: number; output: string }> {
    const script = path.join(import.meta.dirname, 'exporting-process.ts')
    const env = { ...process.env, OTEL_EXPORTER_OTLP_ENDPOINT: url }
    const child = spawn(process.execPath, ['--conditions=caisson-source', script], { env })
    let output = ''
    let endedAt = 0
    for (const stream of [child.stdout, child.stderr])
      stream.on('data', (chunk) => {
        output += chunk
        if (output.includes('the run has ended') && endedAt === 0) endedAt = performance.now()
      })
    const [code] = (await once(child, 'close')) as [number]
    expect(code).toBe(0)
    return { ms: performance.now() - endedAt, output }
  }

  it('ends once its spans are taken or nobody listens, and after a few seconds when nobody answers [R.04]', async () => {
    await using taking = await startOtlpReceiver()
    await using mute = await startOtlpReceiver(() => ({ after: 'never' }))
    const urls = [taking.url, `http://127.0.0.1:${await closedPort()}`, mute.url] as const
    const [taken, dead, silent] = await Promise.all([endOf(urls[0]), endOf(urls[1]), endOf(urls[2])])
    expect(taking.spans()).toHaveLength(3)
    expect(taken.output).not.toContain('not exported')
    expect(dead.output).toContain('cannot be reached (ECONNREFUSED)')
    expect(silent.output).toContain('did not take all spans within 3 s')
    expect(silent.ms).toBeGreaterThan(2_000)
    // Both at once with the one that waits its seconds: no load makes them later than that one.
    expect(Math.max(taken.ms, dead.ms)).toBeLessThan(silent.ms)
  })
})
