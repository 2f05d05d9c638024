// A host process to be killed by a test: starts what its argument says, prints the pid as a line of JSON, and waits.

import { warmUp } from '../../runs/guest/warm-up.ts'
import { resolveFolders } from '../../state/folders.ts'
import type { Launcher } from '../../vm/qemu/launcher.ts'
import { spawnQemu } from '../../vm/qemu/qemu-process.ts'
import { startVm } from '../../vm/vm.ts'
import { VmPool } from '../../vm/vm-pool.ts'
import { getTestImage } from './vm.ts'
import { testVmOptions } from './warm-vm.ts'

export type VmHostOrder =
  /** A whole VM, with the folders of the environment. */
  | { readonly kind: 'vm' }
  /** So many warm VMs that wait; their folders name them. */
  | { readonly kind: 'pool'; readonly size: number }
  /** A bare QEMU behind one launcher. */
  | { readonly kind: 'launcher'; readonly launcher: Launcher; readonly qemu: string; readonly kernel: string }

async function start(order: VmHostOrder): Promise<number> {
  if (order.kind === 'pool') {
    const pool = new VmPool(await testVmOptions(resolveFolders()), { warmUp }, { size: order.size })
    await pool.whenFull()
    return process.pid
  }
  if (order.kind === 'vm') {
    const vm = await startVm({ image: await getTestImage(), folders: resolveFolders() })
    return vm.pid
  }
  const qemu = spawnQemu({
    name: 'caisson-orphan-test',
    qemu: order.qemu,
    launcher: order.launcher,
    seccomp: process.platform === 'linux',
    accelerator: 'tcg',
    cpus: 1,
    memoryBytes: 64 * 1024 * 1024,
    boot: { kind: 'kernel', kernel: order.kernel, cmdline: '' },
    drives: [],
    ports: [],
  })
  // The greeting says that QEMU itself runs by now.
  await new Promise((resolve) => qemu.qmp.once('data', resolve))
  return qemu.findPid()
}

// The terminal's Ctrl-C is for the host to handle; here it shall only not end this process.
process.on('SIGINT', () => {})
console.log(JSON.stringify({ pid: await start(JSON.parse(process.argv[2] ?? '') as VmHostOrder) }))
setInterval(() => {}, 60_000)
