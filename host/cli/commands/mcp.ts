/** `caisson mcp`: what MCP servers said of themselves when they were allowed, and how it is forgotten. */

import { readFile } from 'node:fs/promises'
import { CaissonError } from '#specs/errors.ts'
import { reasonOf } from '#specs/node/file-error.ts'
import { formatCount, formatTime } from '../../files/format.ts'
import { readMcpFile } from '../../mcp/config.ts'
import type { McpPin } from '../../mcp/pins.ts'
import type { SignInRecord } from '../../sign-in/sign-in-records.ts'
import { prepareFolders } from '../../state/folders.ts'
import { type ExitCode, exitCodes } from '../exit-codes.ts'
import { hostOf, type Io, signInsOf } from '../io.ts'
import { writeJsonLine } from '../render/json-lines.ts'
import { sanitizeLine } from '../render/sanitize.ts'
import { describeSignIn, signInLine } from '../render/sign-in-lines.ts'
import { realDirectory } from './memory.ts'

/** The servers of a file of `--mcp`. @throws {CaissonError} `invalid_options` */
export async function loadMcpFile(file: string): Promise<Readonly<Record<string, unknown>>> {
  const text = await readFile(file, 'utf8').catch((cause: unknown) => {
    throw new CaissonError(
      'invalid_options',
      `cannot read the MCP servers in ${sanitizeLine(file)}: ${reasonOf(cause)}`,
    )
  })
  const read = readMcpFile(text, file)
  if (!read.ok) throw new CaissonError('invalid_options', sanitizeLine(read.error))
  return read.value
}

export async function mcpList(io: Io, flags: { json?: boolean }): Promise<ExitCode> {
  const { mcpPins } = hostOf(io)
  const [pins, signIns] = [await mcpPins.list(), await signInsOf(io).records.list()]
  for (const pin of pins) {
    if (flags.json === true) await writeJsonLine(io.stdout, pin)
    else io.stdout.write(`${lineOf(pin)}\n`)
  }
  if (signIns.length > 0) await listSignIns(io, signIns, flags)
  if (flags.json === true) return exitCodes.completed
  io.stdout.write(
    pins.length === 0
      ? `no MCP server is approved yet${signIns.length === 0 ? ', and you are signed in to none' : ''}\n`
      : 'To revoke an approval: caisson mcp forget NAME. The next run asks again about servers of a workspace. It approves servers of yours without a question, as they are then.\n',
  )
  return exitCodes.completed
}

export async function mcpForget(
  io: Io,
  names: readonly string[],
  flags: { workspace?: string },
): Promise<ExitCode> {
  const { folders, mcpPins } = hostOf(io)
  await prepareFolders(folders)
  const directory = flags.workspace === undefined ? undefined : await realDirectory(flags.workspace)
  const pins = await mcpPins.list()
  const isKnown = (name: string) =>
    pins.some((pin) => pin.server === name && (directory === undefined || pin.directory === directory))
  const unknown = names.find((name) => !isKnown(name))
  if (unknown !== undefined) {
    const where = directory === undefined ? '' : ` for ${sanitizeLine(directory)}`
    throw new CaissonError(
      'invalid_options',
      `no MCP server "${sanitizeLine(unknown)}" is approved${where}; nothing was revoked. List them: caisson mcp list`,
    )
  }
  for (const name of names) {
    const gone = await mcpPins.forget(name, directory)
    for (const pin of gone) io.stdout.write(`revoked: ${lineOf(pin)}\n`)
  }
  return exitCodes.completed
}

async function listSignIns(
  io: Io,
  records: readonly SignInRecord[],
  flags: { json?: boolean },
): Promise<void> {
  const now = Date.now()
  if (flags.json !== true) io.stdout.write('Sign-ins:\n')
  for (const record of records) {
    if (flags.json === true)
      await writeJsonLine(io.stdout, { type: 'sign-in', ...describeSignIn(record, now) })
    else io.stdout.write(`${signInLine(record, now)}\n`)
  }
}

function lineOf({ server, source, directory, runs, tools, at, runId }: McpPin): string {
  const whose = source === 'user' ? 'yours' : `of ${sanitizeLine(directory ?? '')}`
  return `${sanitizeLine(server)}  ${formatTime(at)}  ${whose}, ${formatCount(tools.length, 'tool')}: ${sanitizeLine(runs, 120)} · allowed in ${runId}`
}
