// What tests of VM control share: the description of a VM, and a stream's text.
import type { VmInfo } from '../../control/messages.ts'

export const info: VmInfo = {
  id: 'vm-0123456789ab',
  runId: null,
  directory: '/somewhere',
  state: 'running',
  createdAtMs: 1,
  memoryBytes: 2 ** 30,
  cpus: 2,
  pid: 4,
  hostPid: process.pid,
  accelerator: 'tcg',
  confinement: 'none',
}

/** All that a stream gives, as text. */
export async function textOf(stream: AsyncIterable<Uint8Array>): Promise<string> {
  const pieces: Uint8Array[] = []
  for await (const piece of stream) pieces.push(piece)
  return Buffer.concat(pieces).toString()
}
