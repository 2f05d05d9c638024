/** The task of `caisson run` from its argument and from standard input. Refuses what is too long or not UTF-8. */
import { CaissonError } from '#specs/errors.ts'
import { limits } from '#specs/protocol/limits.ts'
import type { Io } from '../io.ts'

/** How long piped input may stay silent before a task that was given starts without it. */
const SILENCE_MS = 3_000
/** No UTF-8 text within the limit of characters is longer. */
const MAX_BYTES = 3 * limits.documentMaxChars

export interface TaskInput {
  /** Absent: none was given. */
  readonly task?: string
  /** What was piped in beside the task. */
  readonly context?: Readonly<Record<string, string>>
}

interface Wanted {
  /** The argument; `-` stands for standard input. */
  readonly task: string | undefined
  /** Standard input carries decisions. */
  readonly isJson: boolean
  /** Whether a run without a task is possible. */
  readonly isOptional: boolean
  /** Absent: 3 s. */
  readonly silenceMs?: number
}

/**
 * A task alone stays what it is; text that is piped in beside it becomes a fact of the task; `-`, or text without a task,
 * is the task. A terminal is never read: its keys are for questions.
 * @throws {CaissonError} `invalid_options`
 */
export async function readTaskInput(io: Io, wanted: Wanted): Promise<TaskInput> {
  const { task, isJson, isOptional, silenceMs = SILENCE_MS } = wanted
  const given = task === undefined ? {} : { task }
  if (task === '-') {
    if (isJson)
      throw new CaissonError(
        'invalid_options',
        'the task "-" cannot be used with --json, which reads decisions from standard input; pass the task as an argument',
      )
    if (io.stdin.isTTY === true)
      throw new CaissonError(
        'invalid_options',
        'the task "-" is read from standard input, which is a terminal; pipe a text in, or pass the task as an argument',
      )
    return { task: requireTask(await readText(io)) }
  }
  if (isJson || io.stdin.isTTY === true || (task === undefined && isOptional)) return given
  // Whoever starts a command with a pipe that nobody writes to, such as a service, must not wait for its end.
  const piped = await readText(io, silenceMs)
  if (piped === undefined) {
    io.stderr.write('caisson: nothing came from standard input; the run starts without it\n')
    return given
  }
  if (piped.trim() === '') return given
  return task === undefined ? { task: piped } : { task, context: { 'standard input': piped } }
}

function requireTask(text: string | undefined): string {
  if (text !== undefined && text.trim() !== '') return text
  throw new CaissonError('invalid_options', 'standard input is empty; expected the task')
}

/** All of standard input; undefined when nothing came in time. */
async function readText(io: Io, silenceMs?: number): Promise<string | undefined> {
  if (io.stdin.readableEnded || io.stdin.destroyed) return ''
  const chunks: Buffer[] = []
  let length = 0
  const { promise, resolve, reject } = Promise.withResolvers<boolean>()
  const onData = (chunk: Buffer | string) => {
    clearTimeout(timer)
    const bytes = Buffer.from(chunk)
    length += bytes.length
    if (length > MAX_BYTES) reject(tooLong())
    else chunks.push(bytes)
  }
  const onEnd = () => resolve(true)
  const onError = (error: Error) =>
    reject(new CaissonError('invalid_options', `standard input cannot be read: ${error.message}`))
  const timer = silenceMs === undefined ? undefined : setTimeout(() => resolve(false), silenceMs)
  io.stdin.on('data', onData).on('end', onEnd).on('close', onEnd).on('error', onError)
  try {
    if (!(await promise)) return undefined
  } finally {
    clearTimeout(timer)
    io.stdin.off('data', onData).off('end', onEnd).off('close', onEnd).off('error', onError)
    io.stdin.pause()
  }
  return decode(Buffer.concat(chunks))
}

function decode(bytes: Buffer): string {
  let text: string
  try {
    text = new TextDecoder('utf-8', { fatal: true }).decode(bytes)
  } catch {
    throw new CaissonError(
      'invalid_options',
      'standard input is not UTF-8 text; to let the agent read another file, put it into the workspace',
    )
  }
  if (text.length > limits.documentMaxChars) throw tooLong()
  return text
}

function tooLong(): CaissonError {
  return new CaissonError(
    'invalid_options',
    `standard input is longer than ${limits.documentMaxChars} characters; put the text into a file of the workspace and name it in the task`,
  )
}
