// Names a template by a digest over everything that affects its content.

import { createHash } from 'node:crypto'
import { cpus } from 'node:os'
import { WORKSPACE_DRIVE_BYTES } from '../drives.ts'
import type { Machine } from '../qemu/accelerator.ts'
import { stampFile } from '../qemu/qemu-programs.ts'
import { TEMPLATE_EPOCH_MS } from '../reseed.ts'
import type { StartVmOptions } from '../vm-command.ts'
import { resolveSize } from '../vm-options.ts'

/** Increase it when templates of earlier code must not be used. */
const FORMAT = 3

/** Name of the template: 32 hex digits over everything that affects its content. */
export async function templateName(options: StartVmOptions, machine: Machine): Promise<string> {
  const { image } = options
  const files = 'disk' in image ? [image.disk] : [image.kernel, image.initramfs, image.root, image.agentDisk]
  const facts = [
    [FORMAT, WORKSPACE_DRIVE_BYTES, TEMPLATE_EPOCH_MS],
    await Promise.all(files.map(stampFile)),
    [machine.qemuVersion, await stampFile(machine.qemu), cpus()[0]?.model],
    [options.accelerator === 'auto' ? undefined : options.accelerator, machine.accelerator, machine.seccomp],
    [resolveSize(options), options.guestOptions ?? {}],
  ]
  return createHash('sha256').update(JSON.stringify(facts)).digest('hex').slice(0, 32)
}

/** Whether a folder name below `templates` belongs to a template. */
export function isTemplateName(name: string): boolean {
  return /^[0-9a-f]{32}$/.test(name)
}
