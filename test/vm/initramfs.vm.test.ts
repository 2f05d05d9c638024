import { spawn } from 'node:child_process'
import { afterAll, beforeAll, expect, it } from 'vitest'
import type { Image } from '../../host/image/image.ts'
import { makeScratch, makeStandInImage, type Scratch } from '../../host/test/image/support.ts'

const DEADLINE_MS = 90_000
let scratch: Scratch
let image: Image

beforeAll(async () => {
  scratch = await makeScratch()
  image = await makeStandInImage(scratch.folder)
})
afterAll(async () => await scratch[Symbol.asyncDispose]())

/** Boots the image's kernel with these drives (serial to file) until QEMU ends. @returns its console */
async function boot(
  drives: Record<string, string>,
  words = '',
): Promise<{ console: string; status: number | null }> {
  const args = [
    '-M',
    'q35',
    '-accel',
    'tcg,thread=multi',
    '-cpu',
    'max',
    '-m',
    '512',
    '-nodefaults',
    '-no-reboot',
  ]
  args.push('-display', 'none', '-vga', 'none', '-serial', 'stdio', '-kernel', image.kernel)
  args.push('-initrd', image.initramfs, '-append', `console=ttyS0 quiet loglevel=4 panic=-1 ${words}`)
  for (const [serial, file] of Object.entries(drives)) {
    args.push('-drive', `if=none,id=${serial},file=${file},format=raw,readonly=on`)
    args.push('-device', `virtio-blk-pci,drive=${serial},serial=${serial}`)
  }
  const qemu = spawn('qemu-system-x86_64', args, {
    stdio: ['ignore', 'pipe', 'inherit'],
    timeout: DEADLINE_MS,
  })
  let console = ''
  qemu.stdout.setEncoding('utf8').on('data', (text: string) => {
    console += text
  })
  const status = await new Promise<number | null>((resolve) => qemu.once('close', resolve))
  return { console, status }
}

it('says which drive is missing and ends the VM [V.01]', async () => {
  const { console, status } = await boot({ agent: image.agentDisk })
  expect(console).toContain('caisson: ERROR phase=initramfs expected=drive-root seen=none')
  expect(status).toBe(0)
})

it('says that the agent disk is missing and ends the VM [V.01]', async () => {
  const { console, status } = await boot({ root: image.root })
  expect(console).toContain('caisson: ERROR phase=initramfs expected=drive-agent seen=none')
  expect(status).toBe(0)
})

it('says that the root is not one and ends the VM [V.01]', async () => {
  const { console, status } = await boot({ root: image.initramfs, agent: image.agentDisk })
  expect(console).toContain('caisson: ERROR phase=initramfs expected=erofs seen=unreadable')
  expect(status).toBe(0)
})

it('runs the floor of the start-time figures: a bare Node, then the end [V.01]', async () => {
  const { console, status } = await boot({ root: image.root }, 'caisson.init=/usr/lib/caisson/floor')
  expect(console).toMatch(/^caisson: floor uptime=\d/m)
  expect(status).toBe(0)
})
