/**
 * Fetches a key from where the configuration says it is, at the moment it is needed. The value goes into a
 * {@link Secret} and nowhere else: no message holds it, and what a program prints on standard output is never shown.
 */

import { constants, type Stats } from 'node:fs'
import { type FileHandle, open } from 'node:fs/promises'
import { homedir } from 'node:os'
import path from 'node:path'
import { reasonOf } from '#specs/node/file-error.ts'
import type { Result } from '#specs/protocol/error.ts'
import { findDistrust } from '../files/path-trust.ts'
import { expandHome, findCommand } from '../processes/programs.ts'
import { runProgram } from '../processes/run-program.ts'
import type { KeySource } from './key-source.ts'
import { findKeyring, type KeyringPlace, readFromKeyring, storedKeys } from './keyring.ts'
import { Secret } from './secret.ts'

const COMMAND_TIMEOUT_MS = 30_000
const MAX_BYTES = 64 * 1024
const KEY_MAX_CHARS = 8_192

/** Where keys are looked for: the user's environment (variables, PATH, HOME) and the state folder. */
export type KeyPlace = KeyringPlace

/** The key. The error names the source, what was seen and what to do, never the key. */
export async function resolveKey(source: KeySource, place: KeyPlace): Promise<Result<Secret, string>> {
  const read = await readSource(source, place)
  if (!read.ok) return read
  const why = checkKey(read.value)
  return why === undefined
    ? { ok: true, value: new Secret(read.value) }
    : { ok: false, error: `${describeSource(source)} ${why}` }
}

/** What makes a text unusable as a key, such as `is empty`; nothing otherwise. */
export function checkKey(text: string): string | undefined {
  if (text.trim() === '') return 'is empty; it must contain only the key'
  if (text.length > KEY_MAX_CHARS)
    return `is longer than ${KEY_MAX_CHARS} characters; it must contain only the key`
  if (/[^\x20-\x7e]/.test(text) || text.trim() !== text) {
    return 'contains a line break, a leading or trailing space, or a character that is invalid in a header; it must contain only the key'
  }
  return
}

/** Where a key comes from, for people: `the file ~/key`. */
export function describeSource(source: KeySource): string {
  if ('env' in source) return `the variable ${source.env}`
  if ('file' in source) return `the file ${source.file}`
  if ('keyring' in source) return `the keyring's entry "${source.keyring}"`
  return `the command "${source.command[0]}"`
}

/** Whether a key is likely there, without reading it or running anything; the error as of {@link resolveKey}. */
export async function inspectKey(source: KeySource, place: KeyPlace): Promise<Result<void, string>> {
  const there = { ok: true as const, value: undefined }
  if ('env' in source) {
    const read = await readSource(source, place)
    return read.ok ? there : read
  }
  if ('file' in source) return await withKeyFile(source.file, place.env, async () => there)
  if ('command' in source) {
    const found = await findKeyCommand(source.command[0] ?? '', place.env)
    return found.ok ? there : found
  }
  const found = await findKeyring(place.env)
  if (!found.ok) return found
  if ((await storedKeys(place)).includes(source.keyring)) return there
  const remedy = `to store it: caisson key set ${source.keyring}`
  return {
    ok: false,
    error: `the system's keyring has no key "${source.keyring}" of Caisson; ${remedy}`,
  }
}

async function readSource(source: KeySource, place: KeyPlace): Promise<Result<string, string>> {
  if ('env' in source) {
    const value = Object.hasOwn(place.env, source.env) ? place.env[source.env]?.trim() : undefined
    if (value) return { ok: true, value }
    return { ok: false, error: `the variable ${source.env} is not set; set it to the key` }
  }
  if ('file' in source) return await withKeyFile(source.file, place.env, readKeyFile)
  if ('keyring' in source) return await readFromKeyring(source.keyring, place)
  return await runKeyCommand(source.command, place.env)
}

/** Opens the file if it is the user's alone. */
async function withKeyFile<T>(
  file: string,
  env: KeyPlace['env'],
  use: (handle: FileHandle) => Promise<T | Result<never, string>>,
): Promise<T | Result<never, string>> {
  const place = expandHome(file, env)
  const refuse = (why: string) => ({ ok: false as const, error: `the key file ${place} ${why}` })
  if (!path.isAbsolute(place)) return refuse('has a relative path; use an absolute path or one from ~/')
  try {
    const distrust = findDistrust(place)
    if (distrust !== undefined) {
      const what = distrust.at === place ? '' : `is reached through ${distrust.at}, which `
      return refuse(`${what}${distrust.why}; to fix this: chmod go-rwx ${distrust.at}`)
    }
    // A pipe in its place must not be waited for.
    await using handle = await open(place, constants.O_RDONLY | constants.O_NONBLOCK)
    const why = judgeKeyFile(await handle.stat(), place)
    return why === undefined ? await use(handle) : refuse(why)
  } catch (cause) {
    return refuse(`cannot be read: ${reasonOf(cause)}`)
  }
}

function judgeKeyFile(stat: Stats, place: string): string | undefined {
  const me = process.getuid?.()
  if (!stat.isFile()) return 'is not a file'
  if (me !== undefined && stat.uid !== me) {
    return `belongs to user ${stat.uid}, not to you (${me}); copy it to a file that you own with mode 600`
  }
  if ((stat.mode & 0o077) !== 0) {
    return `can be read by others (mode ${(stat.mode & 0o777).toString(8)}); run: chmod 600 ${place}`
  }
  return stat.size > MAX_BYTES ? `is longer than ${MAX_BYTES} bytes; it must contain only the key` : undefined
}

async function readKeyFile(handle: FileHandle): Promise<Result<string, string>> {
  const { buffer, bytesRead } = await handle.read(Buffer.alloc(MAX_BYTES), { position: 0 })
  return { ok: true, value: buffer.toString('utf8', 0, bytesRead).replace(/\r?\n$/, '') }
}

async function runKeyCommand(
  [name = '', ...argv]: readonly string[],
  env: KeyPlace['env'],
): Promise<Result<string, string>> {
  const found = await findKeyCommand(name, env)
  if (!found.ok) return found
  const ran = await runProgram(found.value, argv, {
    env,
    // Never the workspace: a program may obey what lies in its directory.
    cwd: env.HOME || homedir(),
    timeoutMs: COMMAND_TIMEOUT_MS,
    maxBytes: MAX_BYTES,
  })
  const refuse = (why: string) => ({ ok: false as const, error: `the key's command "${name}" ${why}` })
  if (!ran.ok) return refuse(`${ran.error}; run it by hand to see why`)
  const { code, stdout, stderr } = ran.value
  const [key = ''] = stdout.split(/\r?\n/, 1)
  const hidden = key.trim() === '' ? stderr : stderr.replaceAll(key.trim(), '[secret]')
  const said = hidden.trim() === '' ? '' : `; it said: ${hidden.trim().slice(-500)}`
  if (code !== 0) return refuse(`ended with ${code ?? 'a signal'}${said}; run it by hand to see why`)
  if (key.trim() === '') return refuse(`printed no key as its first line${said}`)
  return { ok: true, value: key }
}

async function findKeyCommand(name: string, env: KeyPlace['env']): Promise<Result<string, string>> {
  const found = await findCommand(name, env)
  return found.ok ? found : { ok: false, error: `the key's command "${name}" ${found.error}` }
}
