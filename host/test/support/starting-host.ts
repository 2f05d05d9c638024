// A host process to be killed by a test in the middle of a start: says that it begins, starts what its argument says,
// says that it runs, and waits. It ends with the test: when its standard input does.

import { resolveFolders } from '../../state/folders.ts'
import type { Launcher } from '../../vm/qemu/launcher.ts'
import { spawnQemu } from '../../vm/qemu/qemu-process.ts'

export type StartingHostOrder =
  /** A bare QEMU behind one launcher, on a kernel that hangs. */
  | {
      readonly kind: 'launcher'
      readonly name: string
      readonly launcher: Launcher
      readonly qemu: string
      readonly kernel: string
    }
  /** A whole VM as a copy of a template, with the folders of the environment. */
  | { readonly kind: 'warm' }

async function startLauncher({
  kind: _,
  kernel,
  ...order
}: StartingHostOrder & { kind: 'launcher' }): Promise<void> {
  say('begins')
  const qemu = spawnQemu({
    ...order,
    seccomp: process.platform === 'linux',
    accelerator: 'tcg',
    cpus: 1,
    memoryBytes: 64 * 1024 * 1024,
    boot: { kind: 'kernel', kernel, cmdline: '' },
    drives: [],
    ports: [],
  })
  await new Promise((resolve) => qemu.qmp.once('data', resolve))
}

async function restoreFromTemplate(): Promise<void> {
  // Imported late: the other kind is to begin soon.
  const { startWarmTestVm, testVmOptions } = await import('./warm-vm.ts')
  const options = await testVmOptions(resolveFolders())
  say('begins')
  await startWarmTestVm(options)
}

function say(word: 'begins' | 'runs'): void {
  console.log(word)
}

process.stdin.on('end', () => process.exit(1)).resume()
const order = JSON.parse(process.argv[2] ?? '') as StartingHostOrder
await (order.kind === 'warm' ? restoreFromTemplate() : startLauncher(order))
say('runs')
