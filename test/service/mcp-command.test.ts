// `caisson mcp serve` as its own process: HTTP for keys of the service, and what a client on standard input may break.
import { readFile, stat } from 'node:fs/promises'
import path from 'node:path'
import { expect, it } from 'vitest'
import { connectMcp, httpTransport, revisions, sendCall } from './mcp-support.ts'
import { heldRuns, placeOf } from './queue-support.ts'

async function servedPlace() {
  const place = await placeOf(await heldRuns())
  const service = place.start('serve', '--port', '0')
  await expect.poll(() => service.errors(), { timeout: 30_000 }).toContain('Caisson listens on')
  return place
}

const initialize = JSON.stringify({
  ...{ jsonrpc: '2.0', id: 1, method: 'initialize' },
  params: { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: { name: 'x', version: '1' } },
})

it('serves HTTP on this machine for keys of the service, until a signal ends it [H.03 H.02]', async () => {
  const place = await servedPlace()
  const server = place.start('mcp', 'serve', '--port', '0')
  const urlOf = () => /serves MCP on (http:\S+)/.exec(server.errors())?.[1]
  await expect.poll(urlOf, { timeout: 30_000 }).toBeTruthy()
  const url = urlOf() ?? ''
  expect(new URL(url).hostname).toBe('127.0.0.1')
  const { secret } = JSON.parse(
    (await place.run('serve', 'keys', 'create', 'mcp', '--scope', 'read', '--json')).stdout,
  ) as { secret: string }
  for (const revision of revisions) {
    const client = await connectMcp(httpTransport(url, secret), { revision })
    expect((await client.callTool({ name: 'list_runs', arguments: {} })).structuredContent).toEqual({
      runs: [],
    })
    expect(await client.callTool({ name: 'run_task', arguments: { prompt: 'x' } })).toMatchObject({
      isError: true,
      content: [{ text: expect.stringContaining('scope') }],
    })
    await client.close()
  }
  expect((await place.run('serve', 'keys', 'revoke', 'mcp')).code).toBe(0)
  const refused = await sendCall(url, secret, { name: 'list_runs', arguments: {} })
  // Accepted a moment ago, it is refused by the service itself.
  expect([200, 401]).toContain(refused.status)
  expect(JSON.stringify(refused.json)).toMatch(/no valid (token|key)/)
  const key = path.join(place.home, 'service/mcp-state-key')
  expect((await stat(key)).mode & 0o777).toBe(0o600)
  expect((await readFile(key, 'utf8')).trim()).toMatch(/^[\w-]{43}$/)
  server.child.kill('SIGTERM')
  expect(await server.ended).toMatchObject({ code: 0, stdout: '' })
})

it('over stdio ends with its client, and with a message that is too long, and prints nothing but the protocol [H.03]', async () => {
  const place = await servedPlace()
  const polite = place.start('mcp', 'serve')
  polite.type(`${initialize}\n`)
  await polite.sees('"protocolVersion":"2025-11-25"')
  polite.child.stdin?.end()
  const { code, stdout, stderr } = await polite.ended
  expect([code, stderr]).toEqual([0, ''])
  expect(
    stdout
      .trim()
      .split('\n')
      .map((line) => (JSON.parse(line) as { jsonrpc: string }).jsonrpc),
  ).toEqual(['2.0'])

  const flooding = place.start('mcp', 'serve')
  flooding.type(`${initialize}\nno json\n{"jsonrpc":"2.0"}\n[]\n`)
  await flooding.sees('"protocolVersion"')
  flooding.type('x'.repeat(1_500_000))
  expect(await flooding.ended).toMatchObject({ code: 0, stderr: expect.stringMatching(/exceed/) })
})
