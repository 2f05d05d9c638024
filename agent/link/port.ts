/**
 * A virtio-serial port of the guest as a Duplex: finds and opens it. net.Socket and fs streams serve such a character
 * device badly; a libuv pipe handle over a non-blocking descriptor gives epoll, back-pressure and an end. The handle
 * is Node's internal `pipe_wrap`, used in this file alone.
 */
import { closeSync, constants, openSync, readdirSync, readFileSync } from 'node:fs'
import { Socket } from 'node:net'
import type { Duplex } from 'node:stream'

/** Opens a port each time it is called; rejects when the port cannot be opened now. */
export type OpenPort = () => Promise<Duplex>

interface PipeHandle {
  open(fd: number): number | undefined
  close(): void
}
interface PipeWrap {
  Pipe: new (type: number) => PipeHandle
  constants: { SOCKET: number }
}

const portsDirectory = '/sys/class/virtio-ports'

/** The device of the port `name`, such as `/dev/vport1p1`. Throws when there is none. */
export function findPort(name: string): string {
  const found = readdirSync(portsDirectory).find((entry) => {
    try {
      return readFileSync(`${portsDirectory}/${entry}/name`, 'utf8').trim() === name
    } catch {
      return false
    }
  })
  if (found === undefined) throw new Error(`no virtio-serial port is called ${name} in ${portsDirectory}`)
  return `/dev/${found}`
}

/**
 * Returns an opener of the port `name`. A port has one opener at a time: end the last Duplex before opening again.
 */
export function createPortOpener(name: string): OpenPort {
  return async () => openDevice(findPort(name))
}

/** Opens a character device, FIFO or socket at `path` for reading and writing as one Duplex. */
export function openDevice(path: string): Duplex {
  return adoptDescriptor(openSync(path, constants.O_RDWR | constants.O_NONBLOCK))
}

/** Wraps an open descriptor in a Duplex, which then owns it. */
function adoptDescriptor(fd: number): Duplex {
  const { Pipe, constants: pipeConstants } = pipeWrap()
  const handle = new Pipe(pipeConstants.SOCKET)
  const failed = handle.open(fd)
  if (failed !== undefined && failed !== 0) {
    closeSync(fd)
    throw new Error(`the descriptor could not be made a pipe handle (libuv error ${failed})`)
  }
  const options = { handle, allowHalfOpen: false, readable: true, writable: true }
  return new Socket(options as unknown as ConstructorParameters<typeof Socket>[0])
}

function pipeWrap(): PipeWrap {
  const { binding } = process as unknown as { binding(name: string): unknown }
  return binding.call(process, 'pipe_wrap') as PipeWrap
}
