/**
 * Assembles calls from Gemini's chunks. A call comes complete, or its arguments come in pieces addressed by a JSON
 * path (`partialArgs` with `willContinue`); later pieces have no name.
 */
import { type ToolCallFragment, textOf } from './parts.ts'
import { isRecord } from './records.ts'

interface OpenCall {
  readonly name: string
  signature: string | null
  readonly args: Record<string, unknown>
  /** Path of a text that continues in the next piece. */
  openText: string | null
}

type Key = string | number

const pathMaxDepth = 64

export class GeminiCalls {
  /** Signatures of the calls, in order. */
  readonly signatures: (string | null)[] = []
  #open: OpenCall | null = null
  #count = 0

  /** The call that `part` completes; null while it continues. A string is a parse error. */
  read(functionCall: Record<string, unknown>, signature: string): ToolCallFragment | null | string {
    const name = textOf(functionCall.name).trim()
    const { args, partialArgs, willContinue } = functionCall
    if (name === '' && this.#open === null)
      return {
        index: this.#count++,
        id: null,
        name: null,
        argumentsText: JSON.stringify(args ?? partialArgs ?? {}),
      }
    if (name !== '' && this.#open !== null) return `a call of ${this.#open.name} did not end`
    this.#open ??= { name, signature: null, args: bare(), openText: null }
    const call = this.#open
    if (signature !== '') call.signature = signature
    if (isRecord(args)) for (const [key, value] of Object.entries(args)) call.args[key] = value
    for (const piece of Array.isArray(partialArgs) ? partialArgs : []) {
      if (!isRecord(piece) || !addPiece(call, piece))
        return `a piece of the arguments of ${call.name} has no place in them`
    }
    return willContinue === true ? null : this.#close(call)
  }

  /** The open call at the end of an answer, if its arguments are complete. */
  end(): ToolCallFragment | null | string {
    const call = this.#open
    if (call === null) return null
    return call.openText === null ? this.#close(call) : `a call of ${call.name} did not end`
  }

  #close({ name, signature, args }: OpenCall): ToolCallFragment {
    this.#open = null
    this.signatures.push(signature)
    return { index: this.#count++, id: null, name, argumentsText: JSON.stringify(args) }
  }
}

/** False when the piece has no path or no value. */
function addPiece(call: OpenCall, piece: Record<string, unknown>): boolean {
  const jsonPath = textOf(piece.jsonPath)
  const keys = readPath(jsonPath)
  if (keys === null) return false
  const continues = call.openText === jsonPath
  call.openText = piece.willContinue === true && piece.stringValue !== undefined ? jsonPath : null
  const { stringValue, numberValue, boolValue, nullValue } = piece
  const value = stringValue ?? numberValue ?? boolValue ?? (nullValue === undefined ? undefined : null)
  // The last piece of a text may be empty.
  if (value === undefined) return continues
  return place(call.args, keys, value, continues)
}

function place(
  root: Record<string, unknown>,
  keys: readonly Key[],
  value: unknown,
  continues: boolean,
): boolean {
  let at: unknown = root
  for (const [depth, key] of keys.entries()) {
    const next = keys[depth + 1]
    const known = childOf(at, key)
    const child =
      next === undefined
        ? continues && typeof known === 'string' && typeof value === 'string'
          ? known + value
          : value
        : (known ?? (typeof next === 'number' ? [] : bare()))
    if (Array.isArray(at) && typeof key === 'number' && key <= at.length) at[key] = child
    else if (isRecord(at) && typeof key === 'string') at[key] = child
    else return false
    at = child
  }
  return true
}

function childOf(value: unknown, key: Key): unknown {
  if (Array.isArray(value) && typeof key === 'number') return value[key]
  return isRecord(value) && typeof key === 'string' && Object.hasOwn(value, key) ? value[key] : undefined
}

/** Without a prototype, so that arguments of any name are ordinary properties. */
function bare(): Record<string, unknown> {
  return Object.create(null)
}

/** The keys of `$.foo.bar[0]['a b']`; null for another form. */
function readPath(path: string): readonly Key[] | null {
  const step = /\.([^.[\]]+)|\[(\d{1,9})\]|\['((?:[^'\\]|\\.)*)'\]|\["((?:[^"\\]|\\.)*)"\]/y
  if (!path.startsWith('$')) return null
  const keys: Key[] = []
  for (step.lastIndex = 1; step.lastIndex < path.length; ) {
    const found = step.exec(path)
    if (found === null || found[0].includes('__proto__') || keys.length === pathMaxDepth) return null
    const [, plain, index, single, double] = found
    const quoted = (single ?? double)?.replaceAll(/\\(.)/g, '$1')
    keys.push(index === undefined ? (plain ?? quoted ?? '') : Number(index))
  }
  return keys.length === 0 ? null : keys
}
