/** What the host asks of QEMU on its command line, as far as the machine of the tests needs it. */
import * as z from 'zod'

const FileNode = z.looseObject({ filename: z.string() })
type BlockNode = {
  'node-name': string
  driver: string
  file: { filename: string }
  backing?: BlockNode | null
}
const BlockNode: z.ZodType<BlockNode> = z.looseObject({
  'node-name': z.string(),
  driver: z.string(),
  file: FileNode,
  backing: z.lazy(() => BlockNode.nullable()).exactOptional(),
}) as z.ZodType<BlockNode>
const PortDevice = z.looseObject({
  driver: z.literal('virtserialport'),
  chardev: z.string(),
  name: z.string(),
})

export interface MachineArguments {
  /** `caisson-` and the VM's id. */
  readonly name: string
  readonly kernel: string
  /** Descriptors of streams, by the name of the character device. */
  readonly streams: ReadonlyMap<string, number>
  /** Descriptors of the ports' streams, by the name of the port. */
  readonly ports: ReadonlyMap<string, number>
  /** Descriptors of one file each: for writing first, where it has two. */
  readonly sets: ReadonlyMap<string, readonly number[]>
  readonly drives: ReadonlyMap<string, BlockNode>
}

export type { BlockNode }

/** @throws when the host asks for something else than a boot of a kernel */
export function readArguments(args: readonly string[]): MachineArguments {
  const streams = new Map<string, number>()
  const ports = new Map<string, number>()
  const sets = new Map<string, number[]>()
  const drives = new Map<string, BlockNode>()
  for (const value of valuesOf(args, '-chardev')) {
    const [, id, fd] = /^socket,id=(\w+),fd=(\d+)$/.exec(value) ?? []
    if (id !== undefined) streams.set(id, Number(fd))
  }
  for (const value of valuesOf(args, '-add-fd')) {
    const [, fd, set] = /^fd=(\d+),set=(\d+)$/.exec(value) ?? []
    if (set === undefined) continue
    const name = `/dev/fdset/${set}`
    sets.set(name, [...(sets.get(name) ?? []), Number(fd)])
  }
  for (const value of valuesOf(args, '-device')) {
    const port = value.startsWith('{') ? PortDevice.safeParse(JSON.parse(value)) : undefined
    if (port?.success) ports.set(port.data.name, streams.get(port.data.chardev) ?? -1)
  }
  for (const value of valuesOf(args, '-blockdev')) {
    const node = BlockNode.parse(JSON.parse(value))
    drives.set(node['node-name'], node)
  }
  const [name, kernel] = [valuesOf(args, '-name')[0], valuesOf(args, '-kernel')[0]]
  if (name === undefined || kernel === undefined) throw new Error('this machine boots a kernel only')
  return { name, kernel, streams, ports, sets, drives }
}

function valuesOf(args: readonly string[], option: string): string[] {
  return args.flatMap((arg, at) => (arg === option ? [args[at + 1] ?? ''] : []))
}
