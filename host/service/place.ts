/** Where this user reaches the service on this machine: the folder with its socket and its token. */
import { randomBytes } from 'node:crypto'
import { constants } from 'node:fs'
import { mkdir, open, rename } from 'node:fs/promises'
import path from 'node:path'
import { CaissonError, errorMessage, hasCode } from '#specs/errors.ts'

/** Name of the socket in the folder. */
export const socketName = 'service.sock'
const tokenName = 'token'
const tokenBytes = 32
const tokenForm = /^[A-Za-z0-9_-]{43}$/

/** Folder of the token, the socket and the workspaces. @param home the state folder */
export function serviceFolder(home: string): string {
  return path.join(home, 'service')
}

/**
 * The token of the service, made at the first start. The file is the user's alone (mode 0600).
 * @param directory made when it is missing
 * @throws {CaissonError} `state_unavailable` when others can read the file, or it has something else
 */
export async function readToken(
  directory: string,
): Promise<{ readonly file: string; readonly token: string }> {
  const file = path.join(directory, tokenName)
  await mkdir(directory, { recursive: true, mode: 0o700 })
  const known = await findToken(directory)
  if (known !== undefined) return { file, token: known }
  const token = randomBytes(tokenBytes).toString('base64url')
  const draft = `${file}.${process.pid}`
  {
    await using handle = await open(draft, 'wx', 0o600)
    await handle.writeFile(`${token}\n`)
    await handle.sync()
  }
  await rename(draft, file)
  return { file, token }
}

/** The token that a service made; undefined when there is none. @throws {CaissonError} as {@link readToken} */
export async function findToken(directory: string): Promise<string | undefined> {
  const file = path.join(directory, tokenName)
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
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return undefined
    if (hasCode(error, 'state_unavailable')) throw error
    throw new CaissonError('state_unavailable', `${file} cannot be read: ${errorMessage(error)}`, {
      cause: error,
    })
  }
}
