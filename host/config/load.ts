/**
 * Reads the user's configuration file, `config.toml` in the configuration folder. A file that others could write or
 * exchange is refused like one that does not fit the schema: it decides what leaves this machine.
 */

import { constants } from 'node:fs'
import { type FileHandle, open } from 'node:fs/promises'
import path from 'node:path'
import { parse, TomlError } from 'smol-toml'
import type * as z from 'zod'
import { errnoOf, reasonOf } from '#specs/node/file-error.ts'
import type { Result } from '#specs/protocol/error.ts'
import {
  describeIssues,
  plainMessagesWithChoices,
  plainMessagesWithoutValues,
} from '#specs/protocol/issue-text.ts'
import { findDistrust } from '../files/path-trust.ts'
import { readBounded } from '../files/regular-file.ts'
import { applyOverrides, suggestSetting } from './overrides.ts'
import { Config } from './schema.ts'

const MAX_BYTES = 1024 * 1024
/** Tables within tables; the schema needs five. */
const MAX_DEPTH = 32

/** Where the file is, whether or not it exists. */
export function configFile(folders: { readonly config: string }): string {
  return path.join(folders.config, 'config.toml')
}

/**
 * The configuration; an empty one without a file. The error says the file, the place and what to do.
 * @param overrides settings of the command line, `KEY=VALUE`, over those of the file
 */
export async function loadConfig(
  folders: { readonly config: string },
  overrides: readonly string[] = [],
): Promise<Result<Config, string>> {
  const file = configFile(folders)
  const refuse = (why: string) => ({ ok: false as const, error: `the configuration file ${file} ${why}` })
  try {
    const distrust = findDistrust(file)
    if (distrust !== undefined) {
      const what = distrust.at === file ? '' : `is reached through ${distrust.at}, which `
      const remedy = `to fix this, run chmod go-w ${distrust.at}: the file decides what leaves this machine`
      return refuse(`${what}${distrust.why}; ${remedy}`)
    }
    // A pipe in its place must not be waited for.
    await using handle = await open(file, constants.O_RDONLY | constants.O_NONBLOCK)
    const text = await readText(handle)
    return text.ok ? readConfig(text.value, file, overrides) : refuse(text.error)
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return readConfig('', file, overrides)
    return refuse(`cannot be read: ${reasonOf(error)}`)
  }
}

async function readText(handle: FileHandle): Promise<Result<string, string>> {
  if (!(await handle.stat()).isFile()) return { ok: false, error: 'is not a file; move it away' }
  const bytes = await readBounded(handle, MAX_BYTES)
  if (bytes === null) return { ok: false, error: `is longer than ${MAX_BYTES} bytes; shorten it` }
  try {
    return { ok: true, value: new TextDecoder('utf-8', { fatal: true }).decode(bytes) }
  } catch {
    return { ok: false, error: 'is not UTF-8; save it as UTF-8' }
  }
}

/** @param file named in errors */
export function readConfig(
  text: string,
  file: string,
  overrides: readonly string[] = [],
): Result<Config, string> {
  let table: unknown
  try {
    table = parse(text, { maxDepth: MAX_DEPTH, unsafeKeyBehaviour: 'throw' })
  } catch (error) {
    if (!(error instanceof TomlError)) throw error
    const what = error.message.split('\n')[0]?.replace(/^Invalid TOML document: /, '')
    return {
      ok: false,
      error: `${file}, line ${error.line}: invalid TOML: ${what}; correct the line (strings need quotes)`,
    }
  }
  return parseConfig(table, file, overrides)
}

/**
 * Errors name no value, which may be a key that does not belong there; of `overrides`, words in the place of choices.
 * @param from named in errors
 * @param overrides see {@link loadConfig}
 */
export function parseConfig(
  value: unknown,
  from: string,
  overrides: readonly string[] = [],
): Result<Config, string> {
  const parsed = Config.safeParse(value, plainMessagesWithoutValues)
  if (!parsed.success)
    return {
      ok: false,
      error: `${from}: ${describe(parsed.error)}. Correct the file, then run caisson config check`,
    }
  if (overrides.length === 0) return { ok: true, value: parsed.data }
  const merged = applyOverrides(value, overrides)
  if (!merged.ok) return merged
  const whole = Config.safeParse(merged.value, plainMessagesWithChoices)
  return whole.success
    ? { ok: true, value: whole.data }
    : { ok: false, error: `a setting of the command line (-c) does not fit: ${describe(whole.error)}` }
}

function describe(error: z.ZodError): string {
  return `${describeIssues(error, { root: 'the top level' })}${suggestSetting(error.issues)}`
}
