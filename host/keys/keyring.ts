/**
 * The system's keyring, through the program that the system has for it: `secret-tool` (Secret Service, Linux) or
 * `security` (macOS Keychain). A key goes to it on standard input, never as an argument; its names are kept in the state
 * folder, because asking the keyring for a list would hand out every key.
 */
import { randomUUID } from 'node:crypto'
import { readFile, rename, rm, writeFile } from 'node:fs/promises'
import path from 'node:path'
import * as z from 'zod'
import type { Result } from '#specs/protocol/error.ts'
import { parseJson } from '../files/json.ts'
import { describeLeftOut, searchProgram } from '../processes/programs.ts'
import { type ProgramEnd, runProgram } from '../processes/run-program.ts'
import { Name } from './key-source.ts'

/** Longer than a command's: a person may have to unlock the keyring. */
const TIMEOUT_MS = 60_000
const MAX_BYTES = 64 * 1024
const SERVICE = 'caisson'
/** Exit code of `security` for a key that is not there. */
const missingOfSecurity = 44

type Environment = Readonly<Record<string, string | undefined>>

/** The way to a keyring. */
export interface KeyringPlace {
  readonly folders: { readonly home: string }
  /** PATH, and where the session's keyring listens. */
  readonly env: Environment
}

interface KeyringProgram {
  readonly name: string
  /** What brings it. */
  readonly remedy: string
  readonly store: (name: string, key: string) => Call
  readonly read: (name: string) => Call
  readonly remove: (name: string) => Call
}

interface Call {
  readonly argv: readonly string[]
  readonly input?: string
}

const secretTool: KeyringProgram = {
  name: 'secret-tool',
  remedy: 'install it (Debian: apt install libsecret-tools gnome-keyring)',
  store: (name, key) => ({
    argv: ['store', `--label=Caisson: ${name}`, 'service', SERVICE, 'key', name],
    input: key,
  }),
  read: (name) => ({ argv: ['lookup', 'service', SERVICE, 'key', name] }),
  remove: (name) => ({ argv: ['clear', 'service', SERVICE, 'key', name] }),
}

const security: KeyringProgram = {
  name: 'security',
  remedy: 'it belongs to macOS, in /usr/bin',
  // Commands on standard input, and the key as hexadecimal digits, which need no quoting.
  store: (name, key) => ({
    argv: ['-i'],
    input: `add-generic-password -U -s ${SERVICE} -a ${name} -X ${Buffer.from(key).toString('hex')}\n`,
  }),
  read: (name) => ({ argv: ['find-generic-password', '-s', SERVICE, '-a', name, '-w'] }),
  remove: (name) => ({ argv: ['delete-generic-password', '-s', SERVICE, '-a', name] }),
}

const elsewhere =
  'a key can also come from a variable { env = "NAME" }, a file of yours alone { file = "PATH" }, or a program that ' +
  'prints it { command = ["PROGRAM"] }, in the configuration file'

/** The key of this name. */
export async function readFromKeyring(name: string, place: KeyringPlace): Promise<Result<string, string>> {
  const ran = await callKeyring((program) => program.read(name), place)
  if (!ran.ok) return ran
  const { code, stdout, stderr } = ran.value
  const key = stdout.replace(/\r?\n$/, '')
  if (code === 0 && key !== '') return { ok: true, value: key }
  const why = lastWords(stderr)
  const error =
    why === ''
      ? `the system's keyring has no key "${name}"; to store it: caisson key set ${name}`
      : `the system's keyring did not return the key "${name}": ${why}; ${elsewhere}`
  return { ok: false, error }
}

/** Stores the key under the name, replacing an earlier one. */
export async function storeInKeyring(
  name: string,
  key: string,
  place: KeyringPlace,
): Promise<Result<void, string>> {
  const stored = await putIntoKeyring(name, key, place)
  if (stored.ok)
    await writeNames(place, [...(await storedKeys(place)).filter((other) => other !== name), name])
  return stored
}

/** Stores what is no key of the user: no list names it. */
export async function putIntoKeyring(
  name: string,
  key: string,
  place: KeyringPlace,
): Promise<Result<void, string>> {
  const ran = await callKeyring((program) => program.store(name, key), place)
  if (!ran.ok) return ran
  // `security -i` ends with 0 whatever its commands did.
  const kept = await readFromKeyring(name, place)
  if (!kept.ok || kept.value !== key) {
    const why = lastWords(ran.value.stderr.replaceAll(key, '[secret]')) || `it ended with ${ran.value.code}`
    return { ok: false, error: `the system's keyring did not store the key: ${why}; ${elsewhere}` }
  }
  return { ok: true, value: undefined }
}

/** Removes the key; nothing happens to one that is not there. */
export async function removeFromKeyring(name: string, place: KeyringPlace): Promise<Result<void, string>> {
  const removed = await dropFromKeyring(name, place)
  if (removed.ok)
    await writeNames(
      place,
      (await storedKeys(place)).filter((other) => other !== name),
    )
  return removed
}

/** Removes what {@link putIntoKeyring} stored. */
export async function dropFromKeyring(name: string, place: KeyringPlace): Promise<Result<void, string>> {
  const ran = await callKeyring((program) => program.remove(name), place)
  if (!ran.ok) return ran
  const { code, stderr } = ran.value
  // A keyring that nobody unlocks gives no key either, and has it still.
  const isRefused = code !== 0 && code !== missingOfSecurity && lastWords(stderr) !== ''
  const left = await readFromKeyring(name, place)
  if (left.ok || isRefused) {
    const why = lastWords(stderr) || `it ended with ${code}`
    return { ok: false, error: `the system's keyring still has the key "${name}": ${why}` }
  }
  return { ok: true, value: undefined }
}

const Names = z.array(Name).max(1_000)

/** Names of keys that were put into the keyring and not removed; not asked of the keyring. */
export async function storedKeys({ folders }: Pick<KeyringPlace, 'folders'>): Promise<readonly string[]> {
  const text = await readFile(namesFile(folders), 'utf8').catch(() => '[]')
  return Names.safeParse(parseJson(text)).data ?? []
}

async function writeNames({ folders }: KeyringPlace, names: readonly string[]): Promise<void> {
  const file = namesFile(folders)
  const draft = `${file}.${randomUUID()}`
  try {
    await writeFile(draft, `${JSON.stringify([...names].sort())}\n`, { mode: 0o600 })
    await rename(draft, file)
  } finally {
    await rm(draft, { force: true })
  }
}

function namesFile(folders: KeyringPlace['folders']): string {
  return path.join(folders.home, 'keys.json')
}

async function callKeyring(
  callOf: (program: KeyringProgram) => Call,
  { env }: KeyringPlace,
): Promise<Result<ProgramEnd, string>> {
  const found = await findKeyring(env)
  if (!found.ok) return found
  const { argv, input } = callOf(found.value.program)
  const ran = await runProgram(found.value.path, argv, {
    env,
    timeoutMs: TIMEOUT_MS,
    maxBytes: MAX_BYTES,
    ...(input === undefined ? {} : { input }),
  })
  if (ran.ok) return ran
  return { ok: false, error: `${found.value.program.name} ${ran.error}; ${elsewhere}` }
}

/** The program that leads to the keyring; the error says how to get it, and what there is without. */
export async function findKeyring(
  env: Environment,
): Promise<Result<{ program: KeyringProgram; path: string }, string>> {
  const program = process.platform === 'darwin' ? security : secretTool
  const found = await searchProgram(program.name, env.PATH)
  if (found.path !== undefined) return { ok: true, value: { program, path: found.path } }
  const why = `the system's keyring is reached by ${program.name}, which is not installed${describeLeftOut(found)}`
  return { ok: false, error: `${why}; ${program.remedy}; ${elsewhere}` }
}

function lastWords(stderr: string): string {
  return stderr.trim().replaceAll(/\s+/g, ' ').slice(-300)
}
