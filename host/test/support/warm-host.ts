// A host process for tests of faults: starts VMs from a template as its argument says, tells on standard output what
// happens, one JSON value a line, and waits to be killed or for the end of its standard input.

import { statfsSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { resolveFolders } from '../../state/folders.ts'
import { openVm } from '../../vm/open-vm.ts'
import type { Vm, VmImage } from '../../vm/vm.ts'
import { awaitHello } from './templates.ts'

const MIB = 1024 * 1024

export interface WarmHostOrder {
  readonly image: VmImage
  readonly vms: number
  /**
   * What comes of the warm-up: `hello` is as it should be; `hang` never ends; `fill` leaves the cache's disk without
   * room, until the start is over.
   */
  readonly warmUp: 'hello' | 'hang' | 'fill'
}

export type WarmHostLine =
  | { readonly progress: string }
  | { readonly warming: number }
  | {
      readonly started: { readonly pid: number; readonly cloned: boolean; readonly coldReason: string | null }
    }

const say = (line: WarmHostLine) => console.log(JSON.stringify(line))
const order = JSON.parse(process.argv[2] ?? '') as WarmHostOrder
const folders = resolveFolders()
const filler = join(folders.cache, 'filler')

async function warmUp(vm: Vm): Promise<void> {
  say({ warming: vm.pid })
  await awaitHello(vm)
  if (order.warmUp === 'hang') await new Promise(() => {})
  if (order.warmUp === 'fill') fill()
}

function fill(): void {
  const { bavail, bsize } = statfsSync(folders.cache)
  writeFileSync(filler, Buffer.alloc(Math.max(0, bavail * bsize - MIB / 4)))
}

const options = { image: order.image, folders, memoryBytes: 512 * MIB }
for (let index = 0; index < order.vms; index += 1) {
  await openVm(
    options,
    { warmUp, onProgress: (progress) => say({ progress }) },
    async ({ vm, origin: { from, coldReason = null } }) => {
      const cloned = from === 'template'
      await vm.fresh
      say({ started: { pid: vm.pid, cloned, coldReason } })
    },
  )
}
process.stdin.resume().once('end', () => process.exit(0))
