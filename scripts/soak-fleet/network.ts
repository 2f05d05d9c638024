/**
 * The way of one host to PostgreSQL: a socket that passes bytes on, until it is cut. Then nothing passes in either direction
 * and nobody learns of it, as where a cable is pulled; behind the cut, connections of before are reset.
 */
import { once } from 'node:events'
import { mkdir } from 'node:fs/promises'
import { connect, createServer, type Server, type Socket } from 'node:net'
import path from 'node:path'

/** What libpq and its kin look for in the folder of an address. */
const socketName = '.s.PGSQL.5432'

export class Network implements AsyncDisposable {
  /** The folder of its socket: `host` of an address of PostgreSQL. */
  readonly folder: string
  readonly #server: Server
  readonly #sockets = new Set<Socket>()
  #isCut = false

  private constructor(folder: string, server: Server) {
    this.folder = folder
    this.#server = server
  }

  /** @param behind the folder of the server's socket */
  static async open(folder: string, behind: string): Promise<Network> {
    await mkdir(folder, { mode: 0o700 })
    const server = createServer((near) => network.#connect(near, connect(path.join(behind, socketName))))
    const network = new Network(folder, server)
    server.listen(path.join(folder, socketName))
    await once(server, 'listening')
    return network
  }

  cut(): void {
    this.#isCut = true
    for (const socket of this.#sockets) socket.pause()
  }

  join(): void {
    this.#isCut = false
    for (const socket of this.#sockets) socket.destroy()
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.join()
    this.#server.close()
    await once(this.#server, 'close')
  }

  #connect(near: Socket, far: Socket): void {
    for (const [from, to] of [
      [near, far],
      [far, near],
    ] as const) {
      this.#sockets.add(from)
      from.on('data', (bytes) => void to.write(bytes))
      from.on('error', () => undefined)
      from.on('close', () => {
        this.#sockets.delete(from)
        if (!this.#isCut) to.destroy()
      })
      if (this.#isCut) from.pause()
    }
  }
}
