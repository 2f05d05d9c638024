/**
 * Reads the user's configuration file, `config.toml` in the configuration folder. A file that others could write is
 * refused like one that does not fit the schema: it decides what leaves this machine.
 */
import { readFile } from 'node:fs/promises'
import path from 'node:path'
import { parse, TomlError } from 'smol-toml'
import type { Result } from '#specs/protocol/error.ts'
import { Config } from './schema.ts'

const MAX_BYTES = 1024 * 1024

/** Where the file is, whether or not it exists. */
export function configFile(folders: { readonly config: string }): string {
  return path.join(folders.config, 'config.toml')
}

/** The configuration; an empty one without a file. The error says the file, the place and what to do. */
export async function loadConfig(folders: { readonly config: string }): Promise<Result<Config, string>> {
  const file = configFile(folders)
  let text: string
  try {
    text = await readFile(file, 'utf8')
  } catch (error) {
    const isMissing = error instanceof Error && 'code' in error && error.code === 'ENOENT'
    return isMissing ? readConfig('', file) : { ok: false, error: `cannot read ${file}: ${String(error)}` }
  }
  return readConfig(text, file)
}

/** @param file named in errors */
export function readConfig(text: string, file: string): Result<Config, string> {
  if (text.length > MAX_BYTES) return { ok: false, error: `${file} is longer than ${MAX_BYTES} bytes` }
  try {
    return parseConfig(parse(text), file)
  } catch (error) {
    if (!(error instanceof TomlError)) throw error
    return { ok: false, error: `${file}: not TOML, line ${error.line}: ${error.message.split('\n')[0]}` }
  }
}

/** @param from named in errors */
export function parseConfig(value: unknown, from: string): Result<Config, string> {
  const parsed = Config.safeParse(value)
  if (parsed.success) return { ok: true, value: parsed.data }
  const [issue] = parsed.error.issues
  const place = issue?.path.join('.') || 'the file'
  return { ok: false, error: `${from}: ${place}: ${issue?.message ?? 'not a configuration'}` }
}
