// The real command as an MCP client starts it, beside a real service with a real VM: a task, its question, and its end.
import { readFile } from 'node:fs/promises'
import path from 'node:path'
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio'
import { expect, it } from 'vitest'
import { cliProgram } from '../../host/test/support/cli-program.ts'
import { readFiles } from '../../host/test/support/runs.ts'
import { serveFileTask } from './file-task.ts'
import { connectMcp, type ShownForm } from './mcp-support.ts'

it('a task in a real VM asks the person at the MCP client, ends with its answer, and changes no file before a person applies it [H.03 A.09 V.05]', async () => {
  const { place, service } = await serveFileTask()
  const forms: ShownForm[] = []
  const args = ['--conditions=caisson-source', '--', cliProgram, 'mcp', 'serve', '-w', place.workspace]
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
