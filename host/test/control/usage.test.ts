// What a VM uses of the host, with a process of this machine in the place of QEMU.
import { spawn } from 'node:child_process'
import { writeFile } from 'node:fs/promises'
import path from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { readingOf } from '../../cli/commands/vm-stats.ts'
import { readUsage } from '../../control/usage.ts'
import { details } from './support.ts'

describe('the usage of a VM', () => {
  it('is read from the process and the disk on the host, and is null without them [V.06]', async () => {
    const disk = path.join(await temporaryFolder('usage'), 'scratch.raw')
    await writeFile(disk, Buffer.alloc(1_000_000, 1))
    const busy = spawn(process.execPath, ['-e', 'for (;;);'])
    onTestFinished(() => void busy.kill('SIGKILL'))
    const pid = busy.pid ?? 0
    // Node starts its threads after it has used some time.
    await expect
      .poll(async () => (await readUsage(pid, disk))?.threads, { timeout: 30_000 })
      .toBeGreaterThan(1)
    await expect.poll(async () => (await readUsage(pid, disk))?.cpuMs, { timeout: 30_000 }).toBeGreaterThan(0)
    const usage = await readUsage(pid, disk)
    expect(usage?.residentBytes).toBeGreaterThan(1_000_000)
    expect(usage?.diskBytes).toBeGreaterThanOrEqual(1_000_000)
    const ended = new Promise((resolve) => busy.once('close', resolve))
    busy.kill('SIGKILL')
    await ended
    expect(await readUsage(pid, disk)).toBeNull()
  })

  it('shows the share of the CPU between two readings, and beside the bounds what is used of them [V.06]', () => {
    const { usage } = details
    const later = usage && { ...usage, atMs: usage.atMs + 1_000, cpuMs: usage.cpuMs + 1_500 }
    expect(readingOf({ ...details, usage: later }, details)).toMatchObject({
      cpuPercent: 150,
      memoryBytes: 2 ** 28,
      memoryMaxBytes: 2 ** 30,
      diskBytes: 4_096,
      diskMaxBytes: 2 ** 33,
      threads: 5,
    })
    expect(readingOf(details, undefined).cpuPercent).toBeNull()
    expect(readingOf({ ...details, usage: null }, details)).toMatchObject({
      cpuPercent: null,
      memoryBytes: null,
    })
  })
})
