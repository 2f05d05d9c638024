// Real processes that import, killed at random moments.
import { fork } from 'node:child_process'
import { once } from 'node:events'
import { mkdir, readdir, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { setImmediate as nextTurn, setTimeout as sleep } from 'node:timers/promises'
import { expect, it, onTestFinished } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { perTier } from '#specs/testing/tier.ts'
import { ArchiveStage } from '../../archive/archive-stage.ts'
import { freeKept } from '../../clean/free.ts'
import { listKept } from '../../clean/inventory.ts'
import type { Host } from '../../host.ts'
import { elsewhere, exported, imported, interruptedRun, left, runId } from './support.ts'

interface Import {
  readonly archive: string
  readonly directory: string
  readonly env: Readonly<Record<string, string>>
}

/** @param kill resolves when it is killed; absent: never. @returns how long it took */
async function importInProcess(
  { archive, directory, env }: Import,
  kill?: () => Promise<unknown>,
): Promise<number> {
  const child = fork(path.join(import.meta.dirname, 'importing.ts'), [archive, directory], {
    execArgv: ['--conditions=caisson-source'],
    env: { PATH: process.env.PATH, ...env },
  })
  onTestFinished(() => void child.kill('SIGKILL'))
  const exit = once(child, 'exit')
  await once(child, 'message')
  const begun = performance.now()
  if (kill !== undefined) {
    await kill()
    child.kill('SIGKILL')
  }
  await exit
  return performance.now() - begun
}

async function untilUnpacking(host: Host): Promise<void> {
  while ((await left(host)).length === 0) await nextTurn()
}

it('what a killed export left is known to clean; one at work keeps its folder, and one that ends leaves none [R.09 V.07]', async () => {
  const { host } = await interruptedRun()
  const keptNow = async () =>
    (await listKept({ folders: host.folders, now: Date.now() })).filter(
      ({ kind }) => kind === 'leftover' || kind === 'unknown',
    )
  const killed = path.join(host.folders.runs, '.export-0123456789abcdef')
  await mkdir(killed)
  await writeFile(path.join(killed, 'workspace.erofs'), 'x')
  {
    await using working = await ArchiveStage.open(host.folders, 'export')
    const kept = await keptNow()
    expect(kept.map(({ path: place, state, note }) => ({ place, state, note })).toSorted(byNote)).toEqual([
      { place: working.directory, state: 'busy', note: 'an export is at work' },
      { place: killed, state: 'old', note: 'unfinished export' },
    ])
    expect(
      (
        await freeKept(
          host.folders,
          kept.filter(({ state }) => state === 'old'),
        )
      ).failed,
    ).toEqual([])
    expect(await left(host)).toEqual([path.basename(working.directory), runId])
  }
  await exported(host)
  expect([await left(host), await keptNow()]).toEqual([[runId], []])
})

const byNote = (a: { note?: string | undefined }, b: typeof a) => (a.note ?? '').localeCompare(b.note ?? '')

it('an import that is killed at any moment leaves a whole run or none; the next one works, and clean frees the rest [R.09 V.07]', async () => {
  const from = await interruptedRun()
  const archive = path.join(await temporaryFolder('archive'), 'run')
  await writeFile(archive, await exported(from.host))
  const { host, directory, home } = await elsewhere()
  const env = { HOME: home, CAISSON_HOME: path.join(home, 'state'), XDG_CONFIG_HOME: home }
  const order = { archive, directory, env }
  const wholeMs = await importInProcess(order)
  expect(await left(host)).toEqual([runId])
  const whole = (await host.runs.read(runId)).length
  await host.runs.remove(runId)
  const rounds = perTier(6, 20)
  let leftCount = 0
  for (let round = 0; round < rounds; round += 1) {
    // The first is killed while it has a folder of its own.
    await importInProcess(order, () =>
      round === 0 ? untilUnpacking(host) : sleep(wholeMs * ((round + Math.random()) / rounds)),
    )
    const names = await left(host)
    const isThere = names.includes(runId)
    expect(names.filter((name) => name !== runId && !/^\.import-[0-9a-f]{16}$/.test(name))).toEqual([])
    expect((await host.runs.list()).map(({ id, problem }) => [id, problem])).toEqual(
      isThere ? [[runId, undefined]] : [],
    )
    if (names.length > (isThere ? 1 : 0)) leftCount += 1
    if (round % 2 === 0) {
      const kept = await listKept({ folders: host.folders, now: Date.now() })
      expect(kept.filter(({ kind }) => kind === 'unknown')).toEqual([])
      const leftovers = kept.filter(({ kind }) => kind === 'leftover')
      expect(leftovers.every(({ state }) => state === 'old')).toBe(true)
      expect((await freeKept(host.folders, leftovers)).failed).toEqual([])
      expect(await left(host)).toEqual(isThere ? [runId] : [])
      expect(await readdir(host.folders.locks)).toEqual([])
    }
    const again = await exported(from.host)
    expect(await imported(host, again, directory)).toMatchObject({ runId, isNew: !isThere })
    expect(await left(host)).toEqual([runId])
    expect(await host.runs.read(runId)).toHaveLength(whole)
    await host.runs.remove(runId)
  }
  expect(leftCount).toBeGreaterThan(0)
}, 240_000)
