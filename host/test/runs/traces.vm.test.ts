// A real run as a collector gets it: the tree of its agents, model requests and calls, the same as its journal folds to.

import type { AddressInfo } from 'node:net'
import { createServer } from 'node:net'
import { describe, expect, it } from 'vitest'
import { reply } from '#specs/testing/model-replies.ts'
import { type Asked, type ServerReply, startModelServer } from '#specs/testing/model-server.ts'
import { RunSpans } from '../../traces/run-spans.ts'
import { traceIdOf } from '../../traces/span.ts'
import { cliPlace } from '../support/cli.ts'
import { startOtlpReceiver } from '../support/otlp-receiver.ts'
import { testBench } from '../support/runs.ts'

const call = (name: string, input: unknown): ServerReply => reply({ calls: [{ name, arguments: input }] })

/** The lead reads a file that is not there and starts a sub-agent, which reads one that is. */
function script(): (asked: Asked) => ServerReply {
  const lead = [
    call('read_file', { path: 'none.txt' }),
    call('spawn_agent', { brief: 'CHILD reads a.txt', name: 'child' }),
    reply({ text: 'the lead is done' }),
  ]
  const child = [call('read_file', { path: 'a.txt' }), reply({ text: 'the child is done' })]
  return ({ messages }) => {
    const task = messages.find(({ role }) => role === 'user')?.content ?? ''
    const turns = /<instructions>\n(?:.*\n\n)?CHILD/.test(task) ? child : lead
    return turns.shift() ?? reply({ text: 'nothing is left' })
  }
}

describe('a run with a collector', () => {
  it('is there as a trace when the host is closed, and the same as its journal tells [R.04]', async () => {
    await using receiver = await startOtlpReceiver()
    await using server = await startModelServer(script())
    const bench = await testBench(
      { 'a.txt': 'words of the file\n' },
      {
        CAISSON_LLM_URL: server.baseUrl,
        CAISSON_LLM_KEY: 'sk-some-key-of-the-test',
        CAISSON_MODEL: 'big-model',
        OTEL_EXPORTER_OTLP_ENDPOINT: receiver.url,
        OTEL_EXPORTER_OTLP_COMPRESSION: 'gzip',
        OTEL_SERVICE_NAME: 'tests',
      },
    )
    const { run, state } = await bench.run('Read all files', { metadata: { ticket: 'T-1' } })
    expect(state.end?.outcome).toBe('completed')
    await bench.host.close()

    const spans = receiver.spans()
    const fold = new RunSpans(run.id)
    const events = await bench.host.runs.read(run.id)
    const folded = events.flatMap((line) => fold.next(line))
    const inOrder = (all: typeof spans) => [...all].sort((a, b) => (a.spanId < b.spanId ? -1 : 1))
    expect(inOrder(spans)).toEqual(inOrder(folded))

    const nameOf = (id?: string) => spans.find(({ spanId }) => spanId === id)?.name ?? 'nobody'
    const nested = spans.map(({ name, parentSpanId, attributes }) =>
      [nameOf(parentSpanId), '>', name, attributes['error.type']].filter(Boolean).join(' '),
    )
    const [lead, child] = ['invoke_agent caisson', 'invoke_agent child']
    expect(nested.sort()).toEqual([
      ...[`${lead} > chat big-model`, `${lead} > chat big-model`, `${lead} > chat big-model`],
      ...[`${lead} > execute_tool read_file not_found`, `${lead} > execute_tool spawn_agent`],
      `${lead} > ${child}`,
      ...[`${child} > chat big-model`, `${child} > chat big-model`, `${child} > execute_tool read_file`],
      `nobody > ${lead}`,
    ])
    expect(new Set(spans.map(({ traceId }) => traceId))).toEqual(new Set([traceIdOf(run.id)]))
    const chats = spans.filter(({ kind }) => kind === 'client')
    for (const { attributes } of chats)
      expect(attributes).toMatchObject({
        'gen_ai.conversation.id': run.id,
        'gen_ai.provider.name': 'custom',
        'gen_ai.response.model': 'scripted',
        'gen_ai.response.finish_reasons': [expect.stringMatching(/^(?:stop|tool_calls)$/)],
        'gen_ai.usage.input_tokens': expect.any(Number),
      })
    expect(receiver.received[0]?.resource['service.name']).toBe('tests')
    const text = JSON.stringify(receiver.received)
    for (const secret of ['sk-some-key', 'words of the file', 'none.txt', 'is done', bench.workspace])
      expect(text).not.toContain(secret)
  })

  it('ends as soon without its collector, with one line about it after the run [R.04]', async () => {
    const closed = createServer().listen(0, '127.0.0.1')
    await new Promise((resolve) => closed.once('listening', resolve))
    const { port } = closed.address() as AddressInfo
    await new Promise((resolve) => closed.close(resolve))
    const endpoint = { OTEL_EXPORTER_OTLP_ENDPOINT: `http://ann:sk-secret@127.0.0.1:${port}` }
    const place = await cliPlace({ 'a.txt': 'a\n' }, endpoint)
    const run = place.start('run', '--ram', '512M', '--no-apply', 'How many files are here?')
    run.child.stdin?.end()
    await run.sees(/journal head/)
    const endedAt = performance.now()
    const { code, stdout, stderr } = await run.ended
    expect(performance.now() - endedAt).toBeLessThan(3_000)
    expect(code).toBe(0)
    const lines = `${stdout}${stderr}`.split('\n').filter((line) => line.includes('Traces of runs'))
    expect(lines).toEqual([
      `Traces of runs are not exported: http://127.0.0.1:${port}/v1/traces cannot be reached (ECONNREFUSED). Start the collector, or correct or unset OTEL_EXPORTER_OTLP_ENDPOINT.`,
    ])
  })
})
