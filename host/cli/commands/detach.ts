/**
 * Starts a run, or continues one, in a process of its own session without a terminal. Resolves as soon as the run's journal
 * is open.
 */
import { spawn } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { closeSync, openSync } from 'node:fs'
import { readFile, rm } from 'node:fs/promises'
import path from 'node:path'
import { Duplex } from 'node:stream'
import { text } from 'node:stream/consumers'
import { CaissonError } from '#specs/errors.ts'
import { parseJson } from '../../files/json.ts'
import type { Host, RunOptions } from '../../host.ts'
import { prepareFolders } from '../../state/folders.ts'
import { type DetachedOrder, DetachedReply, replyFd } from '../detached-order.ts'
import { type ExitCode, exitCodes } from '../exit-codes.ts'
import { hostOf, type Io } from '../io.ts'

/** Characters of the log in an error. */
const logTailChars = 2_000

type Work = DetachedOrder extends infer Order ? (Order extends unknown ? Omit<Order, 'log'> : never) : never

/** @returns the run's id. @throws {CaissonError} why there is no run */
export async function startDetached(io: Io, host: Host, work: Work): Promise<string> {
  await prepareFolders(host.folders)
  const log = path.join(host.folders.runs, `.detached-${randomBytes(8).toString('hex')}.log`)
  const fd = openSync(log, 'wx', 0o600)
  try {
    const reply = await startProcess(io, { ...work, log }, fd)
    if (reply === undefined) {
      const said = (await readFile(log, 'utf8')).slice(-logTailChars)
      throw new CaissonError(
        'internal',
        `the background process ended before it had a run\n${said}`.trimEnd(),
      )
    }
    if (reply.ok) return reply.runId
    throw new CaissonError(reply.code, reply.message)
  } finally {
    closeSync(fd)
    // It is in the run's folder by now, unless there is none.
    await rm(log, { force: true })
  }
}

/** Undefined when the process ended without a reply. */
async function startProcess(io: Io, order: DetachedOrder, log: number): Promise<DetachedReply | undefined> {
  // Beside this file, compiled or not.
  const program = path.join(import.meta.dirname, `../detached-host${path.extname(import.meta.filename)}`)
  const child = spawn(process.execPath, [...process.execArgv, program], {
    // A session of its own: no terminal ends it.
    detached: true,
    cwd: io.directory ?? process.cwd(),
    env: io.env,
    stdio: ['pipe', log, log, 'pipe'],
  })
  const answers = child.stdio[replyFd]
  if (child.stdin === null || !(answers instanceof Duplex)) throw new Error('the process has no pipes')
  await once(child, 'spawn')
  child.stdin.on('error', () => undefined)
  child.stdin.end(JSON.stringify(order))
  const replied = DetachedReply.safeParse(parseJson(await text(answers)))
  child.unref()
  return replied.data
}

interface DetachFlags {
  /** `KEY=VALUE` over the configuration. */
  readonly config?: string[] | undefined
  readonly apply?: boolean | undefined
}

/** `caisson run --detach`. */
export async function runDetached(io: Io, options: RunOptions, flags: DetachFlags): Promise<ExitCode> {
  const { config = [], apply = false } = flags
  const work = { kind: 'run', options, overrides: config, apply } satisfies Work
  tellStarted(io, await startDetached(io, hostOf(io, config), work))
  return exitCodes.completed
}

/** Continues a run. */
export async function resumeDetached(
  io: Io,
  runId: string,
  flags: DetachFlags & { readonly takeOver?: boolean; readonly restart?: boolean } = {},
): Promise<ExitCode> {
  const { apply = false, takeOver = false, restart: fromBeginning = false } = flags
  const work = { kind: 'resume', runId, takeOver, fromBeginning, overrides: [], apply } satisfies Work
  tellStarted(io, await startDetached(io, hostOf(io), work))
  return exitCodes.completed
}

export function tellStarted(io: Io, runId: string): void {
  io.stdout.write(
    [
      `${runId} runs in the background`,
      `  watch:   caisson attach ${runId}`,
      `  answer:  caisson approvals list ${runId}`,
      `  cancel:  caisson runs cancel ${runId}`,
      `  changes: caisson workspace diff ${runId}`,
      '',
    ].join('\n'),
  )
}
