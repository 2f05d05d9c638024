// A state folder on a disk of its own that is full at the worst moments. Mounts one, so it needs root.
import { execFileSync } from 'node:child_process'
import { existsSync, statfsSync } from 'node:fs'
import { rm, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { describe, expect, it, onTestFinished } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import type { FeedItem } from '../../journal/run-feed.ts'
import type { Run } from '../../runs/run.ts'
import { findVms, finish, testBench } from '../support/runs.ts'
import { findQemu } from '../support/vm-processes.ts'

const MIB = 1024 * 1024
const vm = { memoryBytes: 512 * MIB, diskBytes: 256 * MIB } as const

class SmallDisk {
  readonly folder: string
  readonly #filler: string

  private constructor(folder: string) {
    this.folder = folder
    this.#filler = path.join(folder, 'filler')
  }

  static async mount(): Promise<SmallDisk> {
    const folder = await temporaryFolder('disk')
    execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=320m,mode=700', 'none', folder])
    onTestFinished(() => void execFileSync('umount', ['-l', folder]))
    return new SmallDisk(folder)
  }

  get free(): number {
    const { bavail, bsize } = statfsSync(this.folder)
    return bavail * bsize
  }

  async leave(bytes: number): Promise<void> {
    await rm(this.#filler, { force: true })
    if (this.free > bytes) await writeFile(this.#filler, Buffer.alloc(this.free - bytes))
  }

  grow(): void {
    execFileSync('mount', ['-o', 'remount,size=2g', this.folder])
  }
}

/** Calls `onItem` with each item that satisfies `is`, the first of each. */
async function follow(
  run: Run,
  steps: readonly [(item: FeedItem) => boolean, () => Promise<void> | void][],
): Promise<void> {
  const left = [...steps]
  for await (const item of run.watch()) {
    const next = left.findIndex(([is]) => is(item))
    if (next >= 0) for (const [, act] of left.splice(next, 1)) await act()
  }
  expect(left).toHaveLength(0)
}

const isToolStart = (item: FeedItem): boolean => item.source === 'agent' && item.event.type === 'tool-start'
const waits =
  (what: string) =>
  (item: FeedItem): boolean =>
    item.source === 'delta' && item.delta.type === 'disk-full' && item.delta.text.includes(what)

describe.runIf(process.getuid?.() === 0)('a run whose host has no room', () => {
  it('waits with its VM and with its changes, says so, and loses nothing [W.05]', async () => {
    const disk = await SmallDisk.mount()
    const bench = await testBench({ 'a.txt': 'a\n' }, { CAISSON_HOME: disk.folder })
    const run = await bench.start(
      'Run the command `sleep 3; head -c 100000000 /dev/urandom > big.bin && sync && sha256sum big.bin`',
      { vm },
    )
    const finished = finish(run)
    await follow(run, [
      [isToolStart, () => disk.leave(40 * MIB)],
      [waits("the VM's disk"), () => disk.leave(200 * MIB)],
      [waits('the change set'), () => disk.grow()],
    ])
    const { state, events } = await finished
    expect(state.end).toMatchObject({ outcome: 'completed' })
    expect(events).toContainEqual(
      expect.objectContaining({ type: 'changes-ready', entries: 1, contentBytes: 100_000_000 }),
    )
    const waited = events.flatMap((event) => (event.type === 'disk-wait' ? [event.what] : []))
    expect(new Set(waited)).toEqual(new Set(["the VM's disk", 'the change set']))
    const [review] = await (await bench.host.changes(run.id)).review()
    expect(review?.path).toBe('big.bin')
    expect(await findVms(disk.folder)).toEqual([])
  })

  it('ends with the disk as its reason when somebody cancels the wait [W.05]', async () => {
    const disk = await SmallDisk.mount()
    const bench = await testBench({ 'a.txt': 'a\n' }, { CAISSON_HOME: disk.folder })
    const run = await bench.start('Run the command `head -c 1000000 /dev/urandom > some.bin`', { vm })
    const finished = finish(run)
    await follow(run, [[waits('the change set'), () => void run.cancel({ by: 'a person' })]])
    const { state } = await finished
    expect(state.end).toMatchObject({
      outcome: 'failed',
      reason: 'environment',
      message: expect.stringMatching(/the disk is full.*cancelled by a person/),
    })
  })
})

it('a VM that is killed while its changes are collected is reported as lost, with its end [V.01]', async () => {
  const bench = await testBench({ 'a.txt': 'a\n' })
  const vm = { recoveries: 0 }
  const run = await bench.start('Run the command `head -c 150000000 /dev/urandom > big.bin`', { vm })
  const finished = finish(run)
  const part = path.join(bench.host.runs.paths(run.id).directory, 'changes.bin.part')
  // Found before: on a busy machine the collection could be over by then.
  for await (const item of run.watch()) if (isToolStart(item)) break
  const pid = await findQemu(bench.home)
  while (!existsSync(part)) await sleep(5)
  process.kill(pid, 'SIGKILL')
  const { state, events } = await finished
  expect(state.end).toMatchObject({ outcome: 'failed', reason: 'vm_lost' })
  expect(events).toContainEqual(expect.objectContaining({ type: 'vm-end', expected: false }))
})
