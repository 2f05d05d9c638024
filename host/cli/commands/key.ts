/** `caisson key`: keys in the system's keyring. A key is typed unseen or piped, and never an argument. */

import { StringDecoder } from 'node:string_decoder'
import { CaissonError } from '#specs/errors.ts'
import { Name } from '../../keys/key-source.ts'
import { removeFromKeyring, storedKeys, storeInKeyring } from '../../keys/keyring.ts'
import { checkKey } from '../../keys/keys.ts'
import { prepareFolders } from '../../state/folders.ts'
import { type ExitCode, exitCodes } from '../exit-codes.ts'
import { hostOf, type Io } from '../io.ts'
import { RawTerminal } from '../prompts/terminal-input.ts'
import { writeJsonLine } from '../render/json-lines.ts'

const KEY_MAX_BYTES = 64 * 1024

export async function keySet(io: Io, name: string): Promise<ExitCode> {
  const place = await openPlace(io, name)
  const key =
    io.stdin.isTTY === true ? await askHidden(io, `Key "${name}" (not shown): `) : await readPiped(io)
  if (key === null) {
    io.stderr.write('nothing was stored\n')
    return exitCodes.cancelled
  }
  const why = checkKey(key)
  if (why !== undefined)
    throw new CaissonError('invalid_options', `the ${io.stdin.isTTY === true ? 'typed' : 'piped'} key ${why}`)
  const stored = await storeInKeyring(name, key, place)
  if (!stored.ok) throw new CaissonError('state_unavailable', stored.error)
  io.stdout.write(
    `Stored. The provider ${name} uses it; other settings refer to it as { keyring = "${name}" }.\n`,
  )
  return exitCodes.completed
}

export async function keyList(io: Io, flags: { json?: boolean }): Promise<ExitCode> {
  const names = await storedKeys(hostOf(io))
  for (const name of names) {
    if (flags.json === true) await writeJsonLine(io.stdout, { name })
    else io.stdout.write(`${name}\n`)
  }
  if (names.length === 0 && flags.json !== true)
    io.stdout.write('no keys yet; store one: caisson key set NAME\n')
  return exitCodes.completed
}

export async function keyRemove(io: Io, name: string): Promise<ExitCode> {
  const place = await openPlace(io, name)
  if (!(await storedKeys(place)).includes(name))
    throw new CaissonError('invalid_options', `no key has the name "${name}"; list them: caisson key list`)
  const removed = await removeFromKeyring(name, place)
  if (!removed.ok) throw new CaissonError('state_unavailable', removed.error)
  io.stdout.write(`removed ${name}\n`)
  return exitCodes.completed
}

async function openPlace(io: Io, name: string) {
  // Not repeated: somebody may have given the key itself.
  if (!Name.safeParse(name).success)
    throw new CaissonError('invalid_options', 'invalid key name; expected 1 to 64 of a-z 0-9 _ -')
  const { folders } = hostOf(io)
  await prepareFolders(folders)
  return { folders, env: io.env }
}

async function readPiped(io: Io): Promise<string> {
  const parts: Buffer[] = []
  let length = 0
  for await (const chunk of io.stdin) {
    const part = Buffer.from(chunk as Uint8Array | string)
    length += part.length
    if (length > KEY_MAX_BYTES)
      throw new CaissonError('invalid_options', `the piped key is longer than ${KEY_MAX_BYTES} bytes`)
    parts.push(part)
  }
  return Buffer.concat(parts)
    .toString('utf8')
    .replace(/\r?\n$/, '')
}

const [ctrlC, ctrlD, backspace, ctrlU, escapeKey, del] = [
  '\u0003',
  '\u0004',
  '\b',
  '\u0015',
  '\u001b',
  '\u007f',
]

/** Nothing of what is typed appears, not even its length. Null: given up with Ctrl-C, Ctrl-D or Esc. */
async function askHidden(io: Io, question: string): Promise<string | null> {
  io.stderr.write(question)
  try {
    using _ = new RawTerminal(io.stdin, io.stderr, false)
    const decoder = new StringDecoder('utf8')
    let typed = ''
    for await (const chunk of io.stdin.iterator({ destroyOnReturn: false })) {
      for (const character of decoder.write(Buffer.from(chunk as Uint8Array | string))) {
        if (character === '\r' || character === '\n') return typed
        if (character === ctrlC || character === ctrlD || character === escapeKey) return null
        if (character === ctrlU) typed = ''
        else if (character === backspace || character === del) typed = [...typed].slice(0, -1).join('')
        else if (typed.length < KEY_MAX_BYTES) typed += character
      }
    }
    return null
  } finally {
    io.stderr.write('\n')
  }
}
