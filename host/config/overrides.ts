/**
 * Settings of the command line in the form `KEY=VALUE`, over those of the file; and the names that a misspelled setting may
 * have meant. Refuses a key that is no name and a value that begins as TOML and is none.
 */
import { parse, TomlError } from 'smol-toml'
import * as z from 'zod'
import type { Result } from '#specs/protocol/error.ts'
import { nearestName } from '../files/nearest-name.ts'
import { Config } from './schema.ts'

type Table = Record<string, unknown>

interface Override {
  readonly path: readonly string[]
  readonly value: unknown
}

const OVERRIDES_MAX_DEPTH = 8
const segment = String.raw`(?:[\w-]+|"[^"\n]*"|'[^'\n]*')`
const form = new RegExp(String.raw`^\s*(${segment}(?:\.${segment})*)\s*=([^]*)$`)

/** Reads `limits.maxTokens=5000`, `model=qwen3`, `prices."nvidia/*".input=0.1`. Errors repeat no value, which may be a key. */
function readOverride(text: string): Result<Override, string> {
  const [, key = '', value = ''] = form.exec(text) ?? []
  const path = [...key.matchAll(new RegExp(segment, 'g'))].map(([name]) =>
    name.replace(/^(["'])(.*)\1$/, '$2'),
  )
  if (path.length === 0 || path.length > OVERRIDES_MAX_DEPTH || path.includes('__proto__'))
    return { ok: false, error: 'expected KEY=VALUE, for example limits.maxTokens=50000' }
  const read = readValue(value.trim())
  return read.ok
    ? { ok: true, value: { path, value: read.value } }
    : { ok: false, error: `${key}: ${read.error}` }
}

/** A TOML value; text that is none stands for itself, so that it needs no quotes within those of the shell. */
function readValue(text: string): Result<unknown, string> {
  if (text === '') return { ok: false, error: 'has no value; for an empty text write ""' }
  if (!text.includes('\n'))
    try {
      const { value } = parse(`value = ${text}`, {
        maxDepth: OVERRIDES_MAX_DEPTH,
        unsafeKeyBehaviour: 'throw',
      })
      return { ok: true, value }
    } catch (error) {
      if (!(error instanceof TomlError)) throw error
      if (/^["'[{]/.test(text))
        return { ok: false, error: 'is not a TOML value; check its quotes and brackets' }
    }
  return { ok: true, value: text }
}

/**
 * The table with each setting in its place; the table itself stays as it is.
 * @returns an error that names the setting
 */
export function applyOverrides(table: unknown, overrides: readonly string[]): Result<unknown, string> {
  const merged = structuredClone(table) as Table
  for (const text of overrides) {
    const read = readOverride(text)
    if (!read.ok) return { ok: false, error: `the setting ${read.error}` }
    const { path, value } = read.value
    let at = merged
    for (const name of path.slice(0, -1)) {
      const below = Object.hasOwn(at, name) ? at[name] : undefined
      const next =
        typeof below === 'object' && below !== null && !Array.isArray(below) ? (below as Table) : {}
      at[name] = next
      at = next
    }
    at[path.at(-1) ?? ''] = value
  }
  return { ok: true, value: merged }
}

/**
 * The environment without the variables that a setting of the command line stands over: flags win over the environment.
 * @param overrides that {@link applyOverrides} reads; others are ignored
 */
export function withoutOverridden(
  env: Readonly<Record<string, string | undefined>>,
  overrides: readonly string[],
): Readonly<Record<string, string | undefined>> {
  const keys = new Set(
    overrides.flatMap((text) => {
      const read = readOverride(text)
      return read.ok ? [read.value.path.join('.'), read.value.path[0] ?? ''] : []
    }),
  )
  const hidden = [
    ...(keys.has('model') ? ['CAISSON_MODEL'] : []),
    ...(keys.has('provider') || keys.has('providers')
      ? ['CAISSON_LLM_URL', 'CAISSON_LLM_KEY', 'OPENAI_BASE_URL', 'OPENAI_API_KEY', 'OPENAI_MODEL']
      : []),
    ...(keys.has('providers.nvidia.key') ? ['NVIDIA_API_KEY'] : []),
  ]
  if (hidden.length === 0) return env
  const others = Object.fromEntries(hidden.map((name) => [name, undefined]))
  // OPENAI_MODEL chooses its server too, which stays.
  const model = env.OPENAI_MODEL === undefined ? undefined : modelOf(overrides)
  return { ...env, ...(model === undefined ? {} : { OPENAI_MODEL: model }), ...others }
}

/** ` (did you mean limits.maxTokens?)` for the first unknown setting that resembles one; else nothing. */
export function suggestSetting(issues: readonly z.core.$ZodIssue[]): string {
  for (const issue of issues) {
    if (issue.code !== 'unrecognized_keys') continue
    for (const key of issue.keys) {
      const meant = nearestName(key, namesAt(issue.path))
      if (meant !== undefined) return ` (did you mean ${[...issue.path.map(String), meant].join('.')}?)`
    }
  }
  return ''
}

interface Shape {
  readonly properties?: Readonly<Record<string, Shape>>
  readonly additionalProperties?: Shape | false
  readonly items?: Shape
}

let shape: Shape | undefined

function namesAt(path: readonly PropertyKey[]): string[] {
  shape ??= z.toJSONSchema(Config, { io: 'input', unrepresentable: 'any' }) as Shape
  let at: Shape | undefined = shape
  for (const name of path)
    at =
      typeof name === 'number'
        ? at?.items
        : (at?.properties?.[String(name)] ?? (at?.additionalProperties || undefined))
  return Object.keys(at?.properties ?? {})
}

/** The last `model=…`. */
function modelOf(overrides: readonly string[]): string | undefined {
  const models = overrides.flatMap((text) => {
    const read = readOverride(text)
    return read.ok && read.value.path.join('.') === 'model' ? [read.value.value] : []
  })
  const last = models.at(-1)
  return typeof last === 'string' ? last : undefined
}
