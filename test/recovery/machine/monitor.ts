/** QEMU's monitor as the host uses it for a VM with checkpoints. What this machine cannot do is refused as QEMU would. */
import type { Duplex } from 'node:stream'
import * as z from 'zod'
import type { MachineArguments } from './arguments.ts'
import type { LayeredDisk } from './disk.ts'

const Command = z.object({
  execute: z.string(),
  id: z.number(),
  arguments: z.looseObject({}).exactOptional(),
})
const Add = z.looseObject({ 'node-name': z.string(), file: z.looseObject({ filename: z.string() }) })
const Snapshot = z.looseObject({ overlay: z.string() })
const Delete = z.looseObject({ 'node-name': z.string() })
const Commit = z.looseObject({ 'job-id': z.string(), 'top-node': z.string(), 'base-node': z.string() })
const Dismiss = z.looseObject({ id: z.string() })

const version = { qemu: { major: 9, minor: 0, micro: 0 }, package: '' }

export function serveMonitor(
  stream: Duplex,
  { sets }: Pick<MachineArguments, 'sets'>,
  disk: LayeredDisk,
): void {
  const jobs = new Set<string>()
  const commands: Readonly<Record<string, (args: unknown) => unknown>> = {
    qmp_capabilities: () => ({}),
    stop: () => ({}),
    cont: () => ({}),
    quit: () => process.exit(0),
    'blockdev-add': (args) => {
      const { 'node-name': node, file } = Add.parse(args)
      const [fd] = sets.get(file.filename) ?? []
      if (fd === undefined) throw new Error(`no file ${file.filename}`)
      disk.add({ node, fd })
      return {}
    },
    'blockdev-snapshot': (args) => require(disk.putOnTop(Snapshot.parse(args).overlay)),
    'blockdev-del': (args) => require(disk.remove(Delete.parse(args)['node-name'])),
    'block-commit': (args) => {
      const { 'job-id': job, 'top-node': top, 'base-node': base } = Commit.parse(args)
      jobs.add(job)
      return require(disk.merge(top, base))
    },
    'query-jobs': () => [...jobs].map((id) => ({ id, status: 'concluded', type: 'commit' })),
    'job-dismiss': (args) => require(jobs.delete(Dismiss.parse(args).id)),
  }
  const answer = (line: string): void => {
    const { execute, id, arguments: args } = Command.parse(JSON.parse(line))
    try {
      const run = commands[execute]
      if (run === undefined) throw new Error(`the command ${execute} has not been found`)
      stream.write(`${JSON.stringify({ return: run(args), id })}\n`)
    } catch (error) {
      stream.write(`${JSON.stringify({ error: { class: 'GenericError', desc: String(error) }, id })}\n`)
    }
  }
  let rest = ''
  stream.on('data', (chunk: Buffer) => {
    const lines = (rest + chunk.toString('utf8')).split('\n')
    rest = lines.pop() ?? ''
    for (const line of lines) if (line.trim() !== '') answer(line)
  })
  stream.write(`${JSON.stringify({ QMP: { version, capabilities: [] } })}\n`)
}

function require(isDone: boolean): object {
  if (!isDone) throw new Error('there is no such node')
  return {}
}
