/**
 * The HTTP service of this user on this machine, by its Unix socket in the state folder. Sends the token only to a socket
 * that no other user can have made, and waits for no service that does not answer.
 */
import { lstat } from 'node:fs/promises'
import { request } from 'node:http'
import path from 'node:path'
import * as z from 'zod'
import { CaissonError, errorMessage } from '#specs/errors.ts'
import { Health, Problem } from '#specs/service/resources.ts'
import { RunResource } from '#specs/service/run-resources.ts'
import type { RunRequest } from '#specs/service/start-resources.ts'
import { parseJson } from '../files/json.ts'
import { findSocketPlace, findToken, serviceFolder, socketName } from '../service/place.ts'

/** For an answer that needs no work. */
const healthMs = 2_000
/** Between two looks whether the service still answers, while it starts a run. */
const watchMs = 5_000
const answerMaxBytes = 4 * 1024 * 1024

/** A service that can be used. */
export interface LocalService {
  readonly socket: string
  readonly token: string
  /** Another host may carry out its runs, so this machine may not have them. Absent: it does so itself. */
  readonly isOfFleet?: true
}

/** Why something is not used, for one line to the person. */
export interface Unused {
  readonly problem: string
  /** It is of another version, and one of a fleet. Absent: not so, or not known. */
  readonly isOfFleet?: true
}

/** What any version says. */
const AnyHealth = z.looseObject({ version: z.string().max(100), isOfFleet: z.boolean().optional() })

/**
 * The running service of this user and of this version; undefined when there is none.
 * @param home the state folder
 * @param answerMs how long to wait for its answer. Absent: 2 s
 */
export async function findLocalService(
  home: string,
  version: string,
  answerMs = healthMs,
): Promise<LocalService | Unused | undefined> {
  const folder = serviceFolder(home)
  const isOurs = await isOfUserAlone(folder)
  // What a folder names that others can write is not looked at.
  const socket = isOurs ? await findSocketPlace(folder) : path.join(folder, socketName)
  const found = await lstat(socket).catch(() => undefined)
  if (found === undefined) return undefined
  const place = path.dirname(socket)
  const isMine = found.isSocket() && found.uid === (process.getuid?.() ?? found.uid)
  if (!isMine || !isOurs || !(await isOfUserAlone(place)))
    return {
      problem: `${socket} can be of another user; make its folder yours alone: chmod 700 ${isOurs ? place : folder}`,
    }
  try {
    const token = await findToken(folder)
    if (token === undefined) return { problem: `the service on ${socket} has no token; restart it` }
    const answer = await exchange(socket, { path: '/healthz', signal: AbortSignal.timeout(answerMs) })
    const health = readAnswer(Health, answer)
    const ofFleet = readAnswer(AnyHealth, answer)?.isOfFleet === true ? { isOfFleet: true as const } : {}
    if (health?.version === version) return { socket, token, ...ofFleet }
    const other = readAnswer(AnyHealth, answer)?.version ?? version
    const seen = other === version ? 'answers as no service of Caisson does' : `is ${other}`
    return { problem: `the service on ${socket} ${seen}, and this is ${version}; restart it`, ...ofFleet }
  } catch (error) {
    return { problem: whyUnused(socket, error, answerMs) }
  }
}

/**
 * Starts a run in the service. @returns its id, or why the service started none
 * @throws {CaissonError} `connection_lost` when the service ends meanwhile: the run may have been started
 */
export async function startRun(
  { socket, token }: LocalService,
  given: RunRequest,
): Promise<{ readonly runId: string } | Unused> {
  const silence = new AbortController()
  const watch = setInterval(() => {
    const signal = AbortSignal.timeout(healthMs)
    exchange(socket, { path: '/healthz', signal }).catch((error: unknown) => silence.abort(error))
  }, watchMs)
  try {
    const answer = await exchange(socket, {
      ...{ path: '/v1/runs', token, body: JSON.stringify(given), signal: silence.signal },
    })
    const run = answer.status === 201 ? readAnswer(RunResource, answer) : undefined
    if (run !== undefined) return { runId: run.id }
    const { detail, remedy } = readAnswer(Problem, answer) ?? { detail: `it answered ${answer.status}` }
    return { problem: `the service refused: ${detail}${remedy === undefined ? '' : `; ${remedy}`}` }
  } catch (cause) {
    if (isNotThere(cause)) return { problem: whyUnused(socket, cause) }
    throw new CaissonError(
      'connection_lost',
      `the service on ${socket} did not answer: ${errorMessage(silence.signal.reason ?? cause)}; it may have started the run`,
      { cause, remedy: 'see whether it did: caisson runs list' },
    )
  } finally {
    clearInterval(watch)
  }
}

/** Why a service cannot be used, for people. @param error of the connection */
export function whyUnused(socket: string, error: unknown, answerMs: number = healthMs): string {
  if (isNotThere(error)) return `the service on ${socket} has ended; start it again, or delete this socket`
  if (error instanceof Error && error.name === 'TimeoutError')
    return `the service on ${socket} did not answer for ${answerMs / 1_000} seconds`
  return `the service on ${socket} cannot be used: ${errorMessage(error)}`
}

/** Nothing listens, so nothing was sent. @param error of the connection */
export function isNotThere(error: unknown): boolean {
  const code = error instanceof Error && 'code' in error ? error.code : ''
  return code === 'ECONNREFUSED' || code === 'ENOENT'
}

async function isOfUserAlone(folder: string): Promise<boolean> {
  const found = await lstat(folder).catch(() => undefined)
  if (found === undefined) return false
  const { uid, mode } = found
  return found.isDirectory() && uid === (process.getuid?.() ?? uid) && (mode & 0o077) === 0
}

interface Answer {
  readonly status: number
  readonly text: string
}

interface Exchange {
  readonly path: string
  /** JSON to post. Absent: a GET. */
  readonly body?: string
  readonly token?: string
  readonly signal: AbortSignal
}

async function exchange(socketPath: string, { path, body, token, signal }: Exchange): Promise<Answer> {
  const answered = Promise.withResolvers<Answer>()
  const sent = request({
    ...{ socketPath, path, signal, agent: false },
    method: body === undefined ? 'GET' : 'POST',
    headers: {
      ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
      ...(body === undefined
        ? {}
        : { 'content-type': 'application/json', 'content-length': Buffer.byteLength(body) }),
    },
  })
  sent.once('error', (error) => answered.reject(signal.aborted ? signal.reason : error))
  sent.once('response', (response) => {
    const parts: Buffer[] = []
    let bytes = 0
    response.on('data', (part: Buffer) => {
      bytes += part.length
      if (bytes > answerMaxBytes) response.destroy(new Error('its answer is too long'))
      else parts.push(part)
    })
    response.once('error', (error) => answered.reject(signal.aborted ? signal.reason : error))
    response.once('end', () =>
      answered.resolve({ status: response.statusCode ?? 0, text: Buffer.concat(parts).toString('utf8') }),
    )
  })
  sent.end(body)
  return await answered.promise
}

function readAnswer<S extends z.ZodType>(schema: S, { text }: Answer): z.output<S> | undefined {
  return schema.safeParse(parseJson(text)).data
}
