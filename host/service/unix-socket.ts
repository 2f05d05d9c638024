/** Listens on a Unix socket for this user alone, and takes the place of one whose process is gone. */
import { once } from 'node:events'
import { mkdir, rm, stat } from 'node:fs/promises'
import type { Server } from 'node:http'
import { connect } from 'node:net'
import path from 'node:path'
import { CaissonError, errorMessage } from '#specs/errors.ts'

/** Longer paths do not fit the kernel's address of a socket. */
const pathMaxBytes = 107

/** @throws {CaissonError} `not_possible_now` while another process listens there */
export async function listenOnSocket(server: Server, file: string): Promise<void> {
  if (Buffer.byteLength(file) > pathMaxBytes)
    throw new CaissonError(
      'invalid_options',
      `the path of the socket is longer than ${pathMaxBytes} bytes: ${file}`,
      {
        remedy: 'choose a shorter one with --socket',
      },
    )
  const folder = path.dirname(file)
  await mkdir(folder, { recursive: true, mode: 0o700 })
  const { uid, mode } = await stat(folder)
  if (uid !== (process.getuid?.() ?? uid) || (mode & 0o077) !== 0)
    throw new CaissonError('invalid_options', `the folder ${folder} of the socket admits other users`, {
      remedy: `make it yours alone: chmod 700 ${folder}`,
    })
  if (await isServed(file))
    throw new CaissonError('not_possible_now', `a service of this user listens on ${file} already`, {
      remedy: 'stop that one first, or choose another with --socket',
    })
  await rm(file, { force: true })
  server.listen(file)
  await once(server, 'listening').catch((cause: unknown) => {
    throw new CaissonError('not_possible_now', `cannot listen on ${file}: ${errorMessage(cause)}`, { cause })
  })
}

async function isServed(file: string): Promise<boolean> {
  const socket = connect(file)
  try {
    await once(socket, 'connect')
    return true
  } catch {
    return false
  } finally {
    socket.destroy()
  }
}
