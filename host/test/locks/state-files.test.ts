// Many processes change one state file at the same moment, again and again: nothing that was reported to one of them as done
// may be lost, whatever an earlier holder of the lock left behind.
import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { mkdir, readdir } from 'node:fs/promises'
import path from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { perTier } from '#specs/testing/tier.ts'
import { PersistentGrants } from '../../egress/persistent-grants.ts'
import { NoteStore } from '../../memory/note-store.ts'
import { contentFile, type Folders } from './contender.ts'

const COUNT = perTier(6, 20)
const ROUNDS = perTier(1, 3)
const runId = 'run-00000000000000000001'

let processes: ChildProcess[] = []

async function startProcess(): Promise<ChildProcess> {
  const child = fork(path.join(import.meta.dirname, 'contender.ts'), {
    execArgv: ['--conditions=caisson-source'],
  })
  await once(child, 'message')
  return child
}

async function ask(child: ChildProcess, job: string, folders: Folders, name: string): Promise<unknown> {
  const answer = once(child, 'message')
  child.send({ job, folders, name })
  const [told] = await answer
  expect(told).toEqual({ ok: true, value: told.value })
  return told.value
}

/** One round: every process does the job for a name of its own. */
async function contend(job: string, folders: Folders): Promise<unknown[]> {
  return await Promise.all(processes.map((child, at) => ask(child, job, folders, String(at + 1))))
}

async function makeFolders(): Promise<Folders> {
  const home = await temporaryFolder('contend')
  const locks = path.join(home, 'locks')
  await mkdir(locks)
  return { home, locks }
}

/** What a process leaves that is killed while it holds the locks. */
async function leaveLocks(folders: Folders): Promise<void> {
  const child = await startProcess()
  const holds = once(child, 'message')
  child.send({ job: 'hold', folders, name: '' })
  await holds
  const ended = once(child, 'exit')
  child.kill('SIGKILL')
  await ended
  expect(await readdir(folders.locks)).toHaveLength(3)
}

beforeAll(async () => {
  processes = await Promise.all(Array.from({ length: COUNT }, startProcess))
}, 60_000)
afterAll(() => {
  for (const child of processes) child.kill('SIGKILL')
})

const names = Array.from({ length: COUNT }, (_, at) => String(at + 1)).toSorted()

describe.each([
  ['', async () => undefined],
  [', with locks that a killed process left', leaveLocks],
])('many processes at once%s', (_, prepare) => {
  it('lose no change of a JSON file [R.05]', async () => {
    for (let round = 0; round < ROUNDS; round++) {
      const folders = await makeFolders()
      await prepare(folders)
      await contend('json', folders)
      expect((await contentFile(folders).read()).names.toSorted()).toEqual(names)
      expect(await readdir(folders.locks)).toEqual(expect.not.arrayContaining(['content.json.lock']))
      expect((await readdir(folders.home)).toSorted()).toEqual(['content.json', 'locks'])
    }
  }, 120_000)

  it('lose no note [R.05]', async () => {
    for (let round = 0; round < ROUNDS; round++) {
      const folders = await makeFolders()
      await prepare(folders)
      await contend('note', folders)
      const notes = await new NoteStore(folders).list()
      expect(notes.map(({ text }) => text).toSorted()).toEqual(names)
    }
  }, 120_000)

  it('leave no grant in force that was reported as revoked [R.05]', async () => {
    for (let round = 0; round < ROUNDS; round++) {
      const folders = await makeFolders()
      const grants = new PersistentGrants(folders)
      await grants.add(
        Array.from({ length: COUNT + 1 }, (_, at) => ({ effect: 'allow', host: `h${at}.example` }) as const),
        runId,
      )
      await prepare(folders)
      expect(await contend('revoke', folders)).toEqual(Array.from({ length: COUNT }, (_, at) => at + 1))
      expect(grants.list().map(({ id }) => id)).toEqual([COUNT + 1])
    }
  }, 120_000)
})
