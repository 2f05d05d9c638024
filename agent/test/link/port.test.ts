// The pipe handle over a descriptor: a FIFO stands in for the port's character device.
import { execFileSync } from 'node:child_process'
import { closeSync, constants, mkdtempSync, openSync, readSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { createPortOpener, findPort, openDevice } from '../../link/port.ts'

let folder: string
beforeEach(() => {
  folder = mkdtempSync(path.join(tmpdir(), 'caisson-port-'))
})
afterEach(() => rmSync(folder, { recursive: true, force: true }))

describe('a device opened as a Duplex', () => {
  it('reads what is written to it without holding a thread', async () => {
    const fifo = path.join(folder, 'fifo')
    execFileSync('mkfifo', [fifo])
    // Opened for both directions a FIFO hands its own bytes back.
    const device = openDevice(fifo)
    const echoed: Buffer[] = []
    const bytes = Buffer.alloc(300_000, 'caisson')
    const all = new Promise<void>((resolve) => {
      device.on('data', (chunk: Buffer) => {
        echoed.push(chunk)
        if (Buffer.concat(echoed).length >= bytes.length) resolve()
      })
    })
    device.write(bytes)
    await all
    expect(Buffer.concat(echoed).equals(bytes)).toBe(true)
    device.destroy()
  })

  it('holds writers back while nobody reads, and continues when someone does [C.04]', async () => {
    const fifo = path.join(folder, 'fifo')
    execFileSync('mkfifo', [fifo])
    const reader = openSync(fifo, constants.O_RDONLY | constants.O_NONBLOCK)
    const device = openDevice(fifo)
    device.pause()
    let written = false
    device.write(Buffer.alloc(200_000), () => {
      written = true
    })
    await new Promise((resolve) => setTimeout(resolve, 30))
    expect(written).toBe(false)
    // The device itself also takes a buffer of what it wrote, so not all of it passes here.
    const buffer = Buffer.alloc(64 * 1024)
    while (!written) {
      try {
        readSync(reader, buffer)
        await new Promise((resolve) => setImmediate(resolve))
      } catch {
        await new Promise((resolve) => setTimeout(resolve, 2))
      }
    }
    await new Promise((resolve) => setTimeout(resolve, 10))
    expect(written).toBe(true)
    device.destroy()
    closeSync(reader)
  })

  it('fails with its path when there is no such device', async () => {
    expect(() => openDevice(path.join(folder, 'none'))).toThrow(/ENOENT/)
    expect(() => findPort('caisson.none')).toThrow()
    await expect(createPortOpener('caisson.none')()).rejects.toThrow()
  })
})
