// Caisson as an MCP server over HTTP, with the SDK's own client in both revisions: real service, journal and queue, no VM.
import { describe, expect, it } from 'vitest'
import { Host } from '../../host/index.ts'
import { runAtWork, someCall } from '../../host/test/support/run-at-work.ts'
import { runId } from '../../host/test/support/run-values.ts'
import { holderOf, startOf } from './keys-support.ts'
import { connectMcp, httpTransport, revisions, type ShownForm, startMcp } from './mcp-support.ts'
import { serveHost } from './support.ts'

/** A run of a key that asks whether it may delete a file. */
async function askingRun() {
  const run = await runAtWork()
  const host = new Host({ env: run.env })
  const served = await serveHost(host)
  const mine = await holderOf(host, served, 'mine')
  await run.record.host(startOf(mine.metadata))
  const call = {
    ...someCall,
    approvalId: 'q1',
    tool: 'delete_file',
    arguments: '{"path":"old.txt"}',
    preview: 'delete old.txt\u202e',
  }
  return { run, host, served, mine, ask: () => run.queue.ask(call) }
}

const finished = {
  type: 'run-end',
  outcome: 'completed',
  reason: 'completed',
  message: '',
  summary: 'It is done.',
  usage: { requests: 0, inputTokens: 0, outputTokens: 0, reasoningTokens: 0 },
  durationMs: 1,
} as const

describe.each(revisions)('an MCP client of %s over HTTP', (revision) => {
  it('sees tools that neither approve nor apply, and a person approves at its form [H.03 A.09]', async () => {
    const { run, served, mine, ask } = await askingRun()
    const server = await startMcp(served.service.url)
    const forms: ShownForm[] = []
    const client = await connectMcp(httpTransport(server.url, mine.secret), {
      revision,
      onForm: (form) => {
        forms.push(form)
        return { action: 'accept', content: { decision: 'yes, this once' } }
      },
    })
    const { tools } = await client.listTools()
    expect(tools.map(({ name }) => name).toSorted()).toEqual([
      'cancel_run',
      'get_run',
      'list_runs',
      'run_task',
    ])
    const asked = ask()
    await expect.poll(async () => (await mine.send('GET', '/v1/approvals')).text).toContain('q1')
    const got = client.callTool({ name: 'get_run', arguments: { runId, waitSeconds: 20 } })
    expect(await asked).toMatchObject({ decision: 'allow' })
    await run.end(finished)
    expect(await got).toMatchObject({
      structuredContent: { runId, status: 'completed', hasEnded: true, answer: 'It is done.' },
    })
    expect(forms).toHaveLength(1)
    expect(forms[0]?.message).toContain('old.txt')
    expect(forms[0]?.message).not.toContain('\u202e')
    expect(forms[0]?.properties.decision?.enum).toEqual(['yes, this once', 'no'])
  })
})
