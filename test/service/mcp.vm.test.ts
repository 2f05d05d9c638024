// The real command as an MCP client starts it, beside a real service with a real VM: a task, its question, and its end.
import { readFile } from 'node:fs/promises'
import path from 'node:path'
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio'
import { expect, it } from 'vitest'
import { reply } from '#specs/testing/model-replies.ts'
import { startModelServer } from '#specs/testing/model-server.ts'
import { cliPlace } from '../../host/test/support/cli.ts'
import { readFiles } from '../../host/test/support/runs.ts'
import { connectMcp, type ShownForm } from './mcp-support.ts'

const calls = [
  ['write_file', { path: 'new.txt', content: 'new\n' }],
  ['delete_file', { path: 'old.txt' }],
] as const
const bin = path.join(import.meta.dirname, '../../host/cli/bin.ts')

it('a task in a real VM asks the person at the MCP client, ends with its answer, and changes no file before a person applies it [H.03 A.09 V.05]', async () => {
  await using model = await startModelServer(({ messages }) => {
    const call = calls[messages.filter(({ role }) => role === 'tool').length]
    return reply(
      call === undefined
        ? { text: 'It is done.' }
        : { calls: [{ id: `call${call[0].slice(0, 5)}`, name: call[0], arguments: call[1] }] },
    )
  })
  const place = await cliPlace(
    { 'old.txt': 'old\n' },
    { CAISSON_LLM_URL: model.baseUrl, CAISSON_MODEL: 'scripted' },
  )
  const service = place.start('serve', '--port', '0')
  await expect.poll(() => service.errors(), { timeout: 30_000 }).toContain('Caisson listens on')
  const forms: ShownForm[] = []
  const args = ['--conditions=caisson-source', '--', bin, 'mcp', 'serve', '-w', place.workspace]
  const transport = new StdioClientTransport({
    command: process.execPath,
    args,
    env: place.env,
    cwd: place.home,
    stderr: 'pipe',
  })
  const client = await connectMcp(transport, {
    revision: '2026-07-28',
    onForm: (form) => {
      forms.push(form)
      return { action: 'accept', content: { decision: 'yes, this once' } }
    },
  })
  const settings = { timeout: 200_000 }
  const answered = await client.callTool(
    { name: 'run_task', arguments: { prompt: 'Replace old.txt by new.txt', waitSeconds: 180 } },
    settings,
  )
  expect(answered.structuredContent).toMatchObject({
    status: 'completed',
    answer: 'It is done.',
    changes: { entries: 2 },
  })
  expect(forms.map(({ message }) => message)).toEqual([expect.stringContaining('old.txt')])
  const { runId } = answered.structuredContent as { runId: string }
  const read = async (part: string) =>
    (await client.readResource({ uri: `caisson://runs/${runId}/${part}` })).contents[0] as { text: string }
  expect((await read('changes')).text).toContain('+new')
  expect(JSON.parse((await read('plan')).text)).toMatchObject({ status: 'completed', hasEnded: true })
  expect((await read('journal')).text).toContain('"name":"person at test-client"')
  expect(await readFiles(place.workspace)).toEqual({ 'old.txt': 'old\n' })
  await client.close()
  expect((await place.run('workspace', 'apply', runId, '--all')).code).toBe(0)
  expect(await readFile(path.join(place.workspace, 'new.txt'), 'utf8')).toBe('new\n')
  service.child.kill('SIGTERM')
  expect((await service.ended).code).toBe(0)
  expect(await place.leftovers()).toEqual([])
}, 300_000)
