import { chmodSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { expect, it } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { spawnQemu } from '../../../vm/qemu/qemu-process.ts'

it('has exited when the last process of it is gone, whichever of them ends first [V.06]', async () => {
  // In the place of bubblewrap a program that ends before what it started, which has left its group.
  const bwrap = path.join(await temporaryFolder('launcher'), 'bwrap')
  const last = `['-c', 'sleep 0.5; echo the last of it >&2'], { detached: true, stdio: ['ignore', 'ignore', 'inherit'] }`
  const program = `require('node:child_process').spawn('/bin/sh', ${last})\nprocess.exit(3)\n`
  writeFileSync(bwrap, `#!${process.execPath}\n${program}`)
  chmodSync(bwrap, 0o755)
  const qemu = spawnQemu({
    name: 'caisson-test',
    qemu: '/usr/bin/qemu-system-x86_64',
    launcher: { kind: 'bubblewrap', bwrap },
    seccomp: true,
    accelerator: 'tcg',
    cpus: 1,
    memoryBytes: 256 * 1024 ** 2,
    boot: { kind: 'kernel', kernel: '/dev/null', cmdline: '' },
    drives: [],
    ports: [],
  })
  expect(await qemu.exited).toEqual({ code: 3, signal: null })
  expect(qemu.stderrTail()).toBe('the last of it\n')
  qemu.destroyStreams()
})
