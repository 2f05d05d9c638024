// One run that is exported to a collector, as its events arrive.
import { once } from 'node:events'
import { type AddressInfo, createServer } from 'node:net'
import { Feed } from '../../journal/run-feed.ts'
import { directNetwork } from '../../net/network.ts'
import { defaultBounds, type ExportBounds } from '../../traces/exporter.ts'
import type { TraceSpan } from '../../traces/span.ts'
import { readTraceSettings } from '../../traces/trace-settings.ts'
import { Traces } from '../../traces/traces.ts'
import {
  journalOf,
  modelEnd,
  modelStart,
  runEnd,
  runId,
  runStart,
  type Step,
  toolEnd,
  toolStart,
  turnEnd,
} from './support.ts'

export const steps: readonly Step[] = [
  [0, runStart()],
  [100, modelStart('model-1', 1)],
  [200, modelEnd('model-1', { costUsd: 0.002 })],
  [210, turnEnd(1, { finishReason: 'tool_calls' }), 'root'],
  [220, toolStart('c1', 'read_file'), 'root'],
  [260, toolEnd('c1', 'read_file'), 'root'],
  [500, runEnd()],
]
export const quick: ExportBounds = {
  ...defaultBounds,
  batchDelayMs: 10,
  retryMinMs: 10,
  retryMaxMs: 40,
  endMs: 300,
}

export interface Exporting {
  readonly traces: Traces
  readonly notes: string[]
  /** Pushes the events of a run. */
  readonly feed: Feed
  /** Ends the feed; resolves when everything was sent or dropped. */
  finish(): Promise<void>
}

export function exporting(
  url: string,
  env: Record<string, string> = {},
  bounds: Partial<ExportBounds> = {},
): Exporting {
  const read = readTraceSettings({ OTEL_EXPORTER_OTLP_ENDPOINT: url, ...env }, '1.2.3')
  if (read.settings === null) throw new Error(read.notes.join())
  const traces = new Traces(read.settings, directNetwork, '1.2.3', { ...quick, ...bounds })
  const notes: string[] = []
  const feed = new Feed()
  const redact = (text: string): string => text
  traces.observe(feed, { runId, redact, note: (text) => notes.push(text) })
  return {
    traces,
    notes,
    feed,
    finish: async () => {
      feed.end()
      await traces.close()
    },
  }
}

/** A whole run; resolves when its export is over. */
export async function exportRun(...given: Parameters<typeof exporting>): Promise<string[]> {
  const { feed, notes, finish } = exporting(...given)
  for (const line of journalOf(steps)) feed.push(line)
  await finish()
  return notes
}

/** A port on which nothing listens. */
export async function closedPort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  server.close()
  await once(server, 'close')
  return port
}

/** By their ids, since batches may bring them in another order. */
export const sorted = (spans: readonly TraceSpan[]): TraceSpan[] =>
  [...spans].sort((a, b) => (a.spanId < b.spanId ? -1 : 1))
