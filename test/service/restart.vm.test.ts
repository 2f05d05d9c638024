// What a run keeps over a restart of `caisson serve`, and a conversation in the VM that the service kept.
import { once } from 'node:events'
import { readFile } from 'node:fs/promises'
import path from 'node:path'
import { expect, it } from 'vitest'
import { reply } from '#specs/testing/model-replies.ts'
import { startModelServer } from '#specs/testing/model-server.ts'
import { ServiceClient } from '../../client/index.ts'
import { type CliProcess, cliPlace, type Place, runArguments } from '../../host/test/support/cli.ts'
import { readFiles } from '../../host/test/support/runs.ts'

const waiting = { timeout: 120_000, interval: 250 }

async function serve(place: Place): Promise<{ process: CliProcess; client: ServiceClient }> {
  const process = place.start('serve', '--port', '0')
  const url = () => /listens on (http:\S+)/.exec(process.errors())?.[1]
  await expect.poll(url, waiting).toBeTruthy()
  const token = (await readFile(path.join(place.home, 'service/token'), 'utf8')).trim()
  return { process, client: new ServiceClient({ baseUrl: url() ?? '', token }) }
}

it('a run that nobody answers stays one when another service continues it: what it asks is denied at once [H.02 R.01]', async () => {
  const calls = [
    ['run_bash', { command: 'sleep 5' }],
    ['delete_file', { path: 'old.txt' }],
  ] as const
  await using model = await startModelServer(({ messages }) => {
    const call = calls[messages.filter(({ role }) => role === 'tool').length]
    return reply(
      call === undefined
        ? { text: 'It is done.' }
        : { calls: [{ id: `call${call[0].slice(0, 5)}`, name: call[0], arguments: call[1] }] },
    )
  })
  const env = { CAISSON_LLM_URL: model.baseUrl, CAISSON_MODEL: 'scripted' }
  const place = await cliPlace({ 'old.txt': 'old\n' }, env)
  const first = await serve(place)
  const { id } = await first.client.call('createRun', {
    body: {
      prompt: 'Delete old.txt',
      workspace: place.workspace,
      approvals: { interactive: false },
      vm: { memoryBytes: 512 * 1024 ** 2 },
    },
  })
  const params = { run: id }
  const types = async () =>
    (await first.client.call('listEvents', { params })).events.map(({ event }) => event.type)
  await expect.poll(types, waiting).toContain('tool-start')
  first.process.child.kill('SIGKILL')
  await once(first.process.child, 'close')

  const second = await serve(place)
  await expect.poll(() => second.process.errors()).toContain(`Continues ${id}`)
  const result = () =>
    second.client.call('getResult', { params, query: { waitMs: '60000' } }).catch(() => undefined)
  await expect.poll(result, waiting).toMatchObject({ outcome: 'completed', changes: { entries: 0 } })
  const { events } = await second.client.call('listEvents', { params, query: { limit: '1000' } })
  const decisions = events.flatMap(({ event }) => (event.type === 'approval-decision' ? [event] : []))
  expect(decisions).toMatchObject([{ decision: 'deny', by: 'mode' }])
  second.process.child.kill('SIGTERM')
  expect((await second.process.ended).code).toBe(0)
}, 240_000)

it('a run in the service continues the VM that the service kept of another one [H.02]', async () => {
  const place = await cliPlace({ 'a.txt': 'a\n' })
  const { process } = await serve(place)
  /** Who started the newest run, and which one it continues. */
  const begun = async () => {
    const [line] = await place.journal()
    return line?.event.type === 'run-start' ? { run: line.runId, ...line.event } : undefined
  }
  const byService = { 'caisson.started-by': 'service' }
  const made = await place.run(
    ...runArguments(place, 'Create b.txt with the content "bee"', '--keep-vm', '--apply'),
  )
  expect([made.code, made.stdout]).toEqual([0, expect.stringContaining('The VM is kept')])
  expect(await readFiles(place.workspace)).toEqual({ 'a.txt': 'a\n', 'b.txt': 'bee' })
  const first = await begun()
  expect(first?.metadata).toMatchObject(byService)
  const read = await place.run(...runArguments(place, 'Read b.txt', '--continue', 'last'))
  expect([read.code, read.stdout]).toEqual([0, expect.stringContaining('bee')])
  expect(await begun()).toMatchObject({ continues: first?.run, metadata: byService })
  process.child.kill('SIGTERM')
  expect((await process.ended).code).toBe(0)
}, 240_000)
