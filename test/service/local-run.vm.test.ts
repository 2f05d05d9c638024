// `caisson run` and `caisson chat` in a terminal beside a real `caisson serve`: what a person sees and does, and a
// terminal that is closed.
import { existsSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import path from 'node:path'
import { expect, it } from 'vitest'
import { cliPlace, type Place, runArguments } from '../../host/test/support/cli.ts'
import { readFiles } from '../../host/test/support/runs.ts'

const waiting = { timeout: 120_000, interval: 250 }

async function serve(place: Place) {
  const service = place.start('serve', '--port', '0')
  await expect.poll(() => service.errors(), waiting).toContain('Caisson listens on')
  return service
}

/** The process that carries a run out. */
async function pidOf({ home }: Place, runId: string): Promise<number> {
  return JSON.parse(await readFile(path.join(home, 'locks', `${runId}.lock`), 'utf8')).pid
}

it('a run in the service is answered in its terminal, outlives another one that is closed, and is cancelled by Ctrl-C [H.02 V.08 S1.03]', async () => {
  const place = await cliPlace({ 'a.txt': 'a\n', 'b.txt': 'b\n', 'c.txt': 'c\n' })
  const service = await serve(place)
  const first = place.startInTerminal(...runArguments(place, 'Delete a.txt'))
  await first.sees('The service carries out the run')
  await first.sees('Allow it?')
  const [line = ''] = (await place.run('approvals', 'list')).stdout.split('\n')
  const [runId = ''] = /run-[0-9a-f]{20}/.exec(line) ?? []
  expect(await pidOf(place, runId)).toBe(service.child.pid)
  first.type('1\r')
  await first.sees('Apply the changes')
  first.type('1\r')
  expect((await first.ended).code).toBe(0)
  expect(await readFiles(place.workspace)).toEqual({ 'b.txt': 'b\n', 'c.txt': 'c\n' })

  const second = place.startInTerminal(...runArguments(place, 'Delete b.txt'))
  await second.sees('Allow it?')
  // Its pseudo-terminal is gone, as when a person closes the window.
  second.child.kill('SIGKILL')
  await second.ended
  const open = async () => (await place.run('approvals', 'list')).stdout
  const [, left = '', approval = ''] = /(run-[0-9a-f]{20})\s+(\S+)/.exec(await open()) ?? []
  expect(left).not.toBe('')
  expect((await place.run('approvals', 'allow', left, approval)).code).toBe(0)
  const status = async () => (await place.run('runs', 'list', '--last', '1')).stdout
  await expect.poll(status, waiting).toContain(`${left}  `)
  await expect.poll(status, waiting).toContain(' completed ')
  expect((await place.run('workspace', 'apply', left, '--all')).code).toBe(0)
  expect(existsSync(path.join(place.workspace, 'b.txt'))).toBe(false)

  const third = place.start(...runArguments(place, 'Run the command `sleep 300`', '--json'))
  await third.sees('"tool-start"')
  third.child.kill('SIGINT')
  const cancelled = await third.ended
  expect([cancelled.code, cancelled.stdout]).toEqual([3, expect.stringContaining('"outcome":"cancelled"')])
  expect(cancelled.stdout).toContain('SIGINT')

  // Nobody is at a terminal.
  const alone = await place.run(...runArguments(place, 'Delete c.txt'))
  expect(alone.stdout).toContain('Denied')
  expect(existsSync(path.join(place.workspace, 'c.txt'))).toBe(true)

  const elsewhere = await place.run('run', 'List the files', '-w', place.home, '--ram', '512M')
  expect(elsewhere.stdout).toMatch(/the service refused: .*--allow-workspace DIR`\. This process carries/)
  service.child.kill('SIGTERM')
  expect((await service.ended).code).toBe(0)
}, 480_000)

it('a conversation runs its tasks in the service; after its terminal is closed it finds the task that waits, and the VM [H.01 H.02 V.08]', async () => {
  const place = await cliPlace({ 'a.txt': 'a\n', 'b.txt': 'b\n' })
  const service = await serve(place)
  const first = place.startInTerminal('chat', '--', '--ram', '512M')
  await first.sees('caisson>')
  first.type('Delete a.txt\r')
  await first.sees('The service carries out the run')
  await first.sees('Allow it?')
  const [line = ''] = (await place.run('approvals', 'list')).stdout.split('\n')
  const [runId = ''] = /run-[0-9a-f]{20}/.exec(line) ?? []
  expect(await pidOf(place, runId)).toBe(service.child.pid)
  first.child.kill('SIGKILL')
  await first.ended

  const second = place.startInTerminal('chat', '--continue', 'last', '--', '--ram', '512M')
  await second.sees('Allow it?')
  second.type('1\r')
  await second.sees(/journal head[\s\S]*caisson>/)
  second.type('/apply\r')
  await second.sees(/Applied[\s\S]*caisson>/)
  expect(await readFiles(place.workspace)).toEqual({ 'b.txt': 'b\n' })
  second.type('Count the words of b.txt\r')
  await second.sees(/journal head[\s\S]*caisson>/)
  second.type('\u0004')
  expect((await second.ended).code).toBe(0)
  const [begin, ...rest] = (await place.journal()).map(({ event }) => event)
  expect(begin).toMatchObject({ continues: runId, metadata: { 'caisson.started-by': 'service' } })
  expect(JSON.stringify(rest)).toContain('"start":"saved"')
  service.child.kill('SIGTERM')
  expect((await service.ended).code).toBe(0)
}, 240_000)
