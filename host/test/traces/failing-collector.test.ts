// Runs exported to a real collector on loopback that is slow, fails, or is not there.
import { describe, expect, it } from 'vitest'
import type { FeedObserver } from '../../journal/run-feed.ts'
import { rootSpanIdOf } from '../../traces/span.ts'
import { type OtlpAnswer, startOtlpReceiver } from '../support/otlp-receiver.ts'
import { closedPort, exporting, exportRun, sorted, steps } from './exporting.ts'
import { journalOf, runEnd, runId, runStart, type Step, spansOf, toolEnd } from './support.ts'

describe('the export to a collector that fails', () => {
  it('is tried again while the run works, and warned of once [R.04]', async () => {
    const answers: OtlpAnswer[] = [
      { status: 503 },
      { status: 429, headers: { 'retry-after': '0' } },
      { status: 502, body: 'sk-words-of-the-collector' },
    ]
    await using receiver = await startOtlpReceiver((index) => answers[index] ?? {})
    const { feed, notes, finish } = exporting(receiver.url)
    const lines = journalOf(steps)
    for (const line of lines.slice(0, -1)) feed.push(line)
    await expect.poll(() => receiver.spans().length).toBe(2)
    for (const line of lines.slice(-1)) feed.push(line)
    await finish()
    expect(sorted(receiver.spans())).toEqual(sorted(spansOf(steps)))
    expect(notes).toEqual([
      `Traces of runs are not exported: ${receiver.url}/v1/traces answered 503. See the log of the collector.`,
    ])
  })

  it('waits as long as the collector demands [R.04]', async () => {
    const times: number[] = []
    await using receiver = await startOtlpReceiver((index) => {
      times.push(performance.now())
      return index === 0 ? { status: 503, headers: { 'retry-after': '1' } } : {}
    })
    await exportRun(receiver.url, {}, { endMs: 5_000 })
    expect(receiver.spans()).toHaveLength(3)
    expect((times[1] ?? 0) - (times[0] ?? 0)).toBeGreaterThan(900)
  })

  it('is not held by a pause of weeks, and asks no sooner [R.04]', async () => {
    await using receiver = await startOtlpReceiver(() => ({
      status: 503,
      headers: { 'retry-after': '99999999' },
    }))
    const { feed, finish } = exporting(receiver.url)
    for (const line of journalOf(steps).slice(0, -1)) feed.push(line)
    await expect.poll(() => receiver.received.length).toBe(1)
    await new Promise((resolve) => setTimeout(resolve, 100))
    const began = performance.now()
    await finish()
    expect(performance.now() - began).toBeLessThan(2_000)
    expect(receiver.received).toHaveLength(1)
  })

  it.each([
    [400, 'answered 400. See the log of the collector.'],
    [401, 'answered 401. Check OTEL_EXPORTER_OTLP_HEADERS.'],
    [404, 'answered 404. Check the path of OTEL_EXPORTER_OTLP_ENDPOINT'],
    [307, 'answered 307. See the log of the collector.'],
    [500, 'answered 500. See the log of the collector.'],
  ])('is given up at status %i, which is named [R.04]', async (status, words) => {
    const headers = { location: 'http://127.0.0.1:1/elsewhere' }
    await using receiver = await startOtlpReceiver(() => ({ status, headers, body: 'sk-words' }))
    const notes = await exportRun(receiver.url)
    expect(receiver.received).toHaveLength(1)
    expect(notes).toEqual([expect.stringContaining(words)])
    expect(notes.join()).not.toContain('sk-words')
  })

  it.each([
    ['http/json', '{"partialSuccess":{"rejectedSpans":"2","errorMessage":"sk-words"}}'],
    // Field 1 { field 1: 300, field 2: "no" }
    ['http/protobuf', Buffer.from('0a0708ac0212026e6f', 'hex')],
  ])('says how many spans it rejected, in %s [R.04]', async (protocol, body) => {
    await using receiver = await startOtlpReceiver(() => ({ body }))
    const notes = await exportRun(receiver.url, { OTEL_EXPORTER_OTLP_PROTOCOL: protocol })
    const count = protocol === 'http/json' ? 2 : 300
    expect(notes).toEqual([expect.stringContaining(`rejected ${count} of 3 spans`)])
  })

  it.each([
    ['http/json', '{"partialSuccess":{"rejectedSpans":"many"}}'],
    ['http/json', '[null'],
    ['http/json', 'null'],
    ['http/protobuf', Buffer.from('0a0708ffffffffffffffffffff', 'hex')],
    ['http/protobuf', Buffer.alloc(200_000, 0xff)],
  ])('takes an answer in %s that cannot be read as success [R.04]', async (protocol, body) => {
    await using receiver = await startOtlpReceiver(() => ({ body }))
    const notes = await exportRun(receiver.url, { OTEL_EXPORTER_OTLP_PROTOCOL: protocol })
    expect(receiver.spans()).toHaveLength(3)
    expect(notes.every((note) => note.includes('rejected'))).toBe(true)
  })

  it('is given up at once when nobody listens, with one warning: address and cause, no user [R.04]', async () => {
    const port = await closedPort()
    const began = performance.now()
    const notes = await exportRun(`http://ann:sk-secret@127.0.0.1:${port}`, {}, { endMs: 20_000 })
    expect(performance.now() - began).toBeLessThan(5_000)
    expect(notes).toEqual([
      `Traces of runs are not exported: http://127.0.0.1:${port}/v1/traces cannot be reached (ECONNREFUSED). Start the collector, or correct or unset OTEL_EXPORTER_OTLP_ENDPOINT.`,
    ])
  })

  it('names a host that cannot be resolved, and not the query of its address [R.04]', async () => {
    const url = 'http://collector.invalid/otlp?key=sk-secret'
    const notes = await exportRun(
      'http://127.0.0.1:1',
      { OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: url },
      { endMs: 30_000 },
    )
    expect(notes.join()).toMatch(
      /http:\/\/collector\.invalid\/otlp cannot be reached \((?:ENOTFOUND|EAI_AGAIN)\)\..* OTEL_EXPORTER_OTLP_TRACES_ENDPOINT/,
    )
    expect(notes.join()).not.toContain('sk-secret')
  })

  it('is over within its time when the collector never answers [R.04]', async () => {
    await using receiver = await startOtlpReceiver(() => ({ after: 'never' }))
    const began = performance.now()
    const notes = await exportRun(receiver.url)
    expect(performance.now() - began).toBeLessThan(2_000)
    expect(notes).toEqual([expect.stringContaining('did not take all spans within 0.3 s after the run')])
  })

  it('ends a request at its time limit, however slowly the collector answers [R.04]', async () => {
    await using receiver = await startOtlpReceiver(() => ({ after: 'never' }))
    const { feed, notes, finish } = exporting(receiver.url, { OTEL_EXPORTER_OTLP_TIMEOUT: '200' })
    for (const line of journalOf(steps).slice(0, -1)) feed.push(line)
    await expect
      .poll(() => notes)
      .toEqual([expect.stringContaining('cannot be reached (no answer in 0.2 s)')])
    await finish()
  })

  it('drops the oldest spans when it falls behind, keeps the span of the run, and warns once [R.04]', async () => {
    await using receiver = await startOtlpReceiver((index) => (index === 0 ? { after: 200 } : {}))
    const { feed, notes, finish } = exporting(
      receiver.url,
      {},
      { batchMaxSpans: 10, queueMaxSpans: 20, endMs: 5_000 },
    )
    const calls = Array.from({ length: 100 }, (_, at): Step => [at, toolEnd(`c${at}`, 'math'), 'root'])
    for (const line of journalOf([[0, runStart()], ...calls, [200, runEnd()]])) feed.push(line)
    await finish()
    expect(receiver.spans()).toHaveLength(30)
    expect(receiver.spans().at(-1)?.spanId).toBe(rootSpanIdOf(runId))
    expect(notes).toEqual([expect.stringContaining('slower than the runs')])
  })

  it('bounds the texts that wait [R.04]', async () => {
    await using receiver = await startOtlpReceiver((index) => (index === 0 ? { after: 200 } : {}))
    const env = { OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT: 'true' }
    const bounds = { batchMaxChars: 20_000, queueMaxChars: 50_000, endMs: 5_000 }
    const { feed, notes, finish } = exporting(receiver.url, env, { ...bounds, batchMaxSpans: 3 })
    const output = 'x'.repeat(8_000)
    const calls = Array.from(
      { length: 40 },
      (_, at): Step => [at, toolEnd(`c${at}`, 'math', { output }), 'root'],
    )
    for (const line of journalOf([[0, runStart()], ...calls, [200, runEnd()]])) feed.push(line)
    await finish()
    expect(receiver.spans().length).toBeLessThan(15)
    for (const { spans } of receiver.received) expect(JSON.stringify(spans).length).toBeLessThan(22_000)
    expect(notes).toEqual([expect.stringContaining('slower than the runs')])
  })

  it('says so when an event cannot be folded, and continues [R.04]', async () => {
    await using receiver = await startOtlpReceiver()
    const { traces } = exporting(receiver.url)
    const notes: string[] = []
    const observers: FeedObserver[] = []
    const feed = { observe: (observer: FeedObserver) => void observers.push(observer) }
    traces.observe(feed, { runId, redact: String, note: (text) => notes.push(text) })
    const [observer] = observers
    const lines = journalOf(steps)
    observer?.event({ ...lines[0], event: null } as never)
    expect(notes).toEqual([expect.stringContaining(`The trace of ${runId} is incomplete`)])
    for (const line of lines) observer?.event(line)
    observer?.end()
    await traces.close()
    expect(receiver.spans()).toHaveLength(3)
  })
})
