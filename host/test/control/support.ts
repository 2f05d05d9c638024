// What tests of VM control share: the description of a VM, and a stream's text.
import type { VmDetails, VmInfo } from '../../control/messages.ts'

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

export const details: VmDetails = {
  ...info,
  imageKey: null,
  qemuVersion: '7.2.22',
  diskMaxBytes: 2 ** 33,
  ports: [80],
  egress: { rules: ['allow https://example.com (this run’s own rules)'], otherwise: 'deny' },
  usage: { atMs: 1_000, cpuMs: 400, residentBytes: 2 ** 28, diskBytes: 4_096, threads: 5 },
}

/** All that a stream gives, as text. */
export async function textOf(stream: AsyncIterable<Uint8Array>): Promise<string> {
  const pieces: Uint8Array[] = []
  for await (const piece of stream) pieces.push(piece)
  return Buffer.concat(pieces).toString()
}
