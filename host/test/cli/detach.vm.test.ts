// Runs of `caisson run --detach`: real background processes, answered, killed and continued from other processes.
import { existsSync } from 'node:fs'
import { readdir, readFile } from 'node:fs/promises'
import path from 'node:path'
import { expect, it } from 'vitest'
import { cliPlace, type Place, runArguments } from '../support/cli.ts'
import { waitUntilGone } from '../support/vm.ts'

const waiting = { timeout: 120_000, interval: 250 }
const key = 'sk-a-key-that-nobody-may-see'

/** The process that holds the run's lock. */
async function hostPid({ home }: Place, runId: string): Promise<number> {
  const lock = JSON.parse(await readFile(path.join(home, 'locks', `${runId}.lock`), 'utf8')) as {
    pid: number
  }
  return lock.pid
}

it('is taken from a process that is stopped, which ends, and is continued to its end [R.11 R.12]', async () => {
  const place = await cliPlace({ 'a.txt': 'a\n', 'b.txt': 'b\n' })
  const started = await place.run(...runArguments(place, 'Delete a.txt', '--detach'))
  const [runId = ''] = /^run-[0-9a-f]{20}/.exec(started.stdout) ?? []
  const asked = async () => (await place.run('approvals', 'list', runId)).stdout
  await expect.poll(asked, waiting).toContain(runId)
  const pid = await hostPid(place, runId)
  process.kill(pid, 'SIGSTOP')
  const taken = await place.run('runs', 'resume', runId, '--take-over', '--detach')
  expect([taken.code, taken.stdout]).toEqual([0, expect.stringContaining(`${runId} runs in the background`)])
  // Where no process reaps orphans, it stays as a zombie.
  const state = await readFile(`/proc/${pid}/stat`, 'utf8').catch(() => 'gone) Z')
  expect(state.split(') ')[1]?.[0]).toBe('Z')
  expect(await hostPid(place, runId)).not.toBe(pid)
  await expect.poll(asked, waiting).toContain(runId)
  const [, approvalId = ''] = (await asked()).split(/\s+/)
  expect((await place.run('approvals', 'allow', runId, approvalId)).code).toBe(0)
  const status = async () => (await place.run('runs', 'list')).stdout
  const last = await hostPid(place, runId)
  await expect.poll(status, waiting).toContain(' completed ')
  const types = (await place.journal()).map(({ event }) => event.type)
  expect(types.filter((type) => type === 'run-resume' || type === 'run-end')).toEqual([
    'run-resume',
    'run-end',
  ])
  expect(await waitUntilGone(last)).toBe(true)
}, 480_000)

it('continues without its terminal, is answered and continued from others, and shows no key [R.10 R.12]', async () => {
  const place = await cliPlace({ 'a.txt': 'a\n', 'b.txt': 'b\n' }, { CAISSON_LLM_KEY: key })
  const started = await place.run(...runArguments(place, 'Delete a.txt', '--detach'))
  expect(started.code, started.stderr).toBe(0)
  const [runId = ''] = /^run-[0-9a-f]{20}/.exec(started.stdout) ?? []
  for (const command of ['attach', 'approvals list', 'runs cancel', 'workspace diff'])
    expect(started.stdout).toContain(`caisson ${command} ${runId}`)
  const pid = await hostPid(place, runId)
  // Field 6 is the session: the process leads one of its own.
  const session = (await readFile(`/proc/${pid}/stat`, 'utf8')).split(') ')[1]?.split(' ')[3]
  expect(session).toBe(String(pid))
  const shown = [await readFile(`/proc/${pid}/cmdline`, 'utf8')]

  const listed = async () => (await place.run('approvals', 'list')).stdout
  await expect.poll(listed, waiting).toContain(runId)
  expect((await place.run('runs', 'list')).stdout).toMatch(new RegExp(`${runId}.* waiting .* waiting since `))

  // Its process is killed while it waits: its question is still there, and the answer continues it.
  process.kill(pid, 'SIGKILL')
  const status = async () => (await place.run('runs', 'list')).stdout
  await expect.poll(status, waiting).toContain(' interrupted ')
  const [, approvalId = ''] = (await listed()).split(/\s+/)
  const answered = await place.run('approvals', 'allow', runId, approvalId)
  expect([answered.code, answered.stdout]).toEqual([
    0,
    expect.stringContaining(`${runId} runs in the background`),
  ])
  await expect.poll(status, waiting).toContain(' completed ')
  const journal = (await place.journal()).map(({ event }) => event)
  const types = journal.map(({ type }) => type)
  expect(types.filter((type) => type === 'approval-request' || type === 'run-end')).toEqual([
    'approval-request',
    'run-end',
  ])
  expect(journal).toContainEqual(expect.objectContaining({ type: 'approval-decision', via: 'journal' }))

  const log = path.join(place.home, 'runs', runId, 'host.log')
  shown.push(await readFile(log, 'utf8'))
  expect(shown.join('\n')).not.toContain(key)
  expect((await readdir(path.join(place.home, 'runs'))).filter((name) => name.startsWith('.'))).toEqual([])
  expect((await place.run('workspace', 'apply', runId, '--all')).code).toBe(0)
  expect([
    existsSync(path.join(place.workspace, 'a.txt')),
    existsSync(path.join(place.workspace, 'b.txt')),
  ]).toEqual([false, true])
}, 240_000)
