/**
 * A program in the place of QEMU: the host starts it as QEMU, with the same descriptors, and speaks to it the same
 * protocols. Instead of a processor it has the real agent as a child process, and instead of a file system a folder,
 * which goes into the layers of the scratch disk when the host has it flushed. Like PID 1, it starts a new agent when
 * one has ended.
 */
import { type ChildProcess, execFileSync, spawn } from 'node:child_process'
import { cpSync, mkdirSync, readFileSync, readlinkSync, renameSync, writeFileSync } from 'node:fs'
import { createServer, Socket } from 'node:net'
import path from 'node:path'
import * as z from 'zod'
import { type BlockNode, type MachineArguments, readArguments } from './arguments.ts'
import { type Layer, LayeredDisk } from './disk.ts'
import { serveMonitor } from './monitor.ts'
import { serveHelper, servePrivilegedPort } from './root-side.ts'

/** What the kernel's file says. */
const Kernel = z.object({ place: z.string(), agent: z.string() })

const RESTART_MS = 50

if (process.argv.includes('--version')) {
  console.log('QEMU emulator version 9.0.0 (machine of the tests)')
} else run(readArguments(process.argv.slice(2)))

function run(args: MachineArguments): void {
  const { place: parent, agent } = Kernel.parse(JSON.parse(readFileSync(args.kernel, 'utf8').trim()))
  const place = path.join(parent, args.name)
  const folders = {
    base: path.join(place, 'base'),
    disk: path.join(place, 'disk'),
    workspace: path.join(place, 'disk', 'workspace'),
    views: path.join(place, 'disk', 'views'),
  }
  for (const folder of [folders.disk, folders.views]) mkdirSync(folder, { recursive: true })
  const chain = chainOf(args.drives.get('scratch'), args)
  const disk = new LayeredDisk(folders.disk, chain)
  const [workspace = -1] = args.sets.get(args.drives.get('workspace')?.file.filename ?? '') ?? []
  extract(workspace, folders.base)
  if (!disk.load()) cpSync(folders.base, folders.workspace, { recursive: true })
  serveMonitor(stream(args.streams.get('qmp')), args, disk)
  servePrivilegedPort(stream(args.ports.get('caisson.root')), () => disk.flush())
  serveHelper(path.join(place, 'helper'), folders)
  servePort(stream(args.ports.get('caisson.rpc')), path.join(place, 'rpc'))
  servePort(stream(args.ports.get('caisson.http')), path.join(place, 'http'))
  const console = stream(args.streams.get('console'))
  startAgent({ program: agent, place, scratch: readlinkSync(`/proc/self/fd/${chain[0]?.fd}`), restarts: 0 })
  console.write(`caisson: init ready uptime=${process.uptime().toFixed(2)}\n`)
}

/** The highest layer first. */
function chainOf(node: BlockNode | null | undefined, args: MachineArguments): Layer[] {
  if (node === null || node === undefined) return []
  const [fd = -1] = args.sets.get(node.file.filename) ?? []
  return [{ node: node['node-name'], fd }, ...chainOf(node.backing, args)]
}

/** The drive is an image of the host's own making; `fsck.erofs` reads it as the kernel does. */
function extract(fd: number, folder: string): void {
  const image = readlinkSync(`/proc/self/fd/${fd}`)
  execFileSync('fsck.erofs', [`--extract=${folder}`, image], {
    stdio: 'ignore',
    env: { PATH: '/usr/bin:/usr/sbin:/bin' },
  })
  execFileSync('chmod', ['-R', 'u+rwX', folder])
}

function stream(fd: number | undefined): Socket {
  const opened = new Socket({ fd: fd ?? -1, readable: true, writable: true })
  // The host has gone: its watcher ends this process too.
  opened.on('error', () => undefined)
  return opened
}

/** Bytes go both ways while an agent has the port open; otherwise the host's wait. */
function servePort(host: Socket, socket: string): void {
  let opened: Socket | undefined
  host.pause()
  createServer((agent) => {
    // A port has one opener: the last one.
    if (opened !== undefined) host.unpipe(opened)
    opened = agent
    agent.on('error', () => undefined)
    host.pipe(agent, { end: false })
    agent.pipe(host, { end: false })
    agent.once('close', () => {
      host.unpipe(agent)
      if (opened === agent) host.pause()
    })
  }).listen(socket)
}

interface AgentStart {
  readonly program: string
  readonly place: string
  /** The path of the layer that this machine writes to, by which a test finds the machine of its run. */
  readonly scratch: string
  readonly restarts: number
}

function startAgent(start: AgentStart): void {
  const { program, place, restarts } = start
  const exits = path.join(place, 'exits.json')
  const child: ChildProcess = spawn(process.execPath, [program], {
    // By its standard input the agent sees that this machine has gone.
    stdio: ['pipe', 'ignore', 'inherit'],
    env: {
      CAISSON_PLACE: place,
      CAISSON_HELPER: path.join(place, 'helper'),
      CAISSON_AGENT_EXITS: exits,
      PATH: '/usr/bin:/bin',
    },
  })
  const pids = JSON.stringify({ machine: process.pid, agent: child.pid, scratch: start.scratch })
  writeFileSync(path.join(place, 'pids.new'), pids)
  renameSync(path.join(place, 'pids.new'), path.join(place, 'pids.json'))
  child.once('exit', (code, signal) => {
    writeFileSync(exits, JSON.stringify({ restarts: restarts + 1, last: { code, signal, stderrTail: '' } }))
    setTimeout(() => startAgent({ ...start, restarts: restarts + 1 }), RESTART_MS)
  })
}
