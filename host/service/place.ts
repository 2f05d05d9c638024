/** Where this user reaches the service on this machine: the folder with its socket and its token. */
import { randomBytes } from 'node:crypto'
import { constants } from 'node:fs'
import { mkdir, open, rename, rm } from 'node:fs/promises'
import path from 'node:path'
import { CaissonError, errorMessage, hasCode } from '#specs/errors.ts'
import { errnoOf } from '#specs/node/file-error.ts'

/** Name of the socket in the folder. */
export const socketName = 'service.sock'
const tokenName = 'token'
/** File that names a socket elsewhere, for the commands of the user. */
const placeName = 'socket'
/** File with the address of the page, for the commands of the user. */
const addressName = 'address'
const placeMaxBytes = 4_096
const tokenBytes = 32
const tokenForm = /^[A-Za-z0-9_-]{43}$/

/** Folder of the token, the socket and the workspaces. @param home the state folder */
export function serviceFolder(home: string): string {
  return path.join(home, 'service')
}

/**
 * The token of the service, or another random text of it, made at the first start. The file is the user's alone (0600).
 * @param directory made when it is missing
 * @throws {CaissonError} `state_unavailable` when others can read the file, or it has something else
 */
export async function readToken(
  directory: string,
  name: string = tokenName,
): Promise<{ readonly file: string; readonly token: string }> {
  const file = path.join(directory, name)
  await mkdir(directory, { recursive: true, mode: 0o700 })
  const known = await findToken(directory, name)
  if (known !== undefined) return { file, token: known }
  const token = randomBytes(tokenBytes).toString('base64url')
  await replaceFile(file, `${token}\n`)
  return { file, token }
}

/** Writes a file of the folder whole or not at all, for this user alone. */
export async function replaceFile(file: string, content: string): Promise<void> {
  const draft = `${file}.${process.pid}`
  await rm(draft, { force: true })
  {
    await using handle = await open(draft, 'wx', 0o600)
    await handle.writeFile(content)
    await handle.sync()
  }
  await rename(draft, file)
}

/**
 * Says where the service listens. @param socket absolute path; undefined: at its usual place in the folder
 */
export async function keepSocketPlace(directory: string, socket: string | undefined): Promise<void> {
  const file = path.join(directory, placeName)
  if (socket === undefined) return await rm(file, { force: true })
  await replaceFile(file, `${socket}\n`)
}

/** Says by which address people reach the service; undefined: by none any more. @param url such as `http://127.0.0.1:3789` */
export async function keepAddress(directory: string, url: string | undefined): Promise<void> {
  const file = path.join(directory, addressName)
  if (url === undefined) await rm(file, { force: true })
  else await replaceFile(file, `${new URL(url).origin}\n`)
}

/** The address that the service of the folder kept; undefined when there is none. @param directory is the user's alone */
export async function findAddress(directory: string): Promise<string | undefined> {
  const text = await readSmall(path.join(directory, addressName))
  const url = text === undefined ? null : URL.parse(text)
  // Nothing but an origin, so that a token that follows it goes nowhere else.
  const isOrigin = url !== null && /^https?:$/.test(url.protocol) && url.origin === text
  return isOrigin ? text : undefined
}

/** The line of a file that a service keeps; undefined when there is no such file. */
async function readSmall(file: string): Promise<string | undefined> {
  try {
    await using handle = await open(file, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK)
    if (!(await handle.stat()).isFile()) return undefined
    const { buffer, bytesRead } = await handle.read(Buffer.alloc(placeMaxBytes), 0, placeMaxBytes, 0)
    return buffer.toString('utf8', 0, bytesRead).replace(/\n$/, '')
  } catch {
    return undefined
  }
}

/** Where the service of the folder listens, or would. @param directory is the user's alone */
export async function findSocketPlace(directory: string): Promise<string> {
  const usual = path.join(directory, socketName)
  const place = await readSmall(path.join(directory, placeName))
  return place !== undefined && path.isAbsolute(place) && !place.includes('\0') ? place : usual
}

/** The token that a service made; undefined when there is none. @throws {CaissonError} as {@link readToken} */
export async function findToken(directory: string, name: string = tokenName): Promise<string | undefined> {
  const file = path.join(directory, name)
  try {
    await using handle = await open(file, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK)
    const found = await handle.stat()
    const { buffer, bytesRead } = await handle.read(Buffer.alloc(128), 0, 128, 0)
    const token = buffer.toString('utf8', 0, bytesRead).trim()
    const isMine =
      found.isFile() && found.uid === (process.getuid?.() ?? found.uid) && (found.mode & 0o077) === 0
    if (isMine && tokenForm.test(token)) return token
    throw new CaissonError(
      'state_unavailable',
      `${file} is no token of the service: expected 43 letters, digits, "-" and "_" in a file of mode 0600`,
      { remedy: 'remove the file; the next start makes a new token' },
    )
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return undefined
    if (hasCode(error, 'state_unavailable')) throw error
    throw new CaissonError('state_unavailable', `${file} cannot be read: ${errorMessage(error)}`, {
      cause: error,
    })
  }
}
