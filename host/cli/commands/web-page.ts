/**
 * The web page of a run of the command line (`--web`): that of the service of this user where one runs, else that of a
 * service in this process, which lives as long as the command.
 */
import { once } from 'node:events'
import type { Writable } from 'node:stream'
import { CaissonError } from '#specs/errors.ts'
import { errnoOf } from '#specs/node/file-error.ts'
import { formatCount } from '../../files/format.ts'
import type { Host } from '../../host.ts'
import { findAddress, findToken, serviceFolder } from '../../service/place.ts'
import { Service } from '../../service/service.ts'
import type { Io } from '../io.ts'
import { findLocalService } from '../local-service.ts'

/** A service as far as its page is concerned. */
export interface PageService {
  /** Its origin. */
  readonly url: string
  readonly directory: string
}

export interface RunPage extends AsyncDisposable {
  /** Whether this process is the service. */
  readonly isOwn: boolean
  /** Says where the page of the command's run is. */
  tell(runId: string): Promise<void>
  /**
   * Stays until a signal while something can be done on the page of this process alone.
   * @param isDecided whether somebody has said what becomes of the changes
   */
  stay(isDecided: boolean): Promise<void>
}

/**
 * @param workspace below which the page can start runs, where this process is the service
 * @throws {CaissonError} when a service is there that has no page for this command
 */
export async function openRunPage(io: Io, host: Host, workspace: string): Promise<RunPage> {
  // The page would end with each task.
  if (io.conversation !== undefined)
    throw new CaissonError('invalid_options', '--web is not possible in a conversation', {
      remedy: 'run caisson serve beside it, whose page shows all runs',
    })
  const directory = serviceFolder(host.folders.home)
  const say = (line: string): void => void io.stderr.write(`${line}\n`)
  const found = await findLocalService(host.folders.home, io.version)
  if (found !== undefined && 'problem' in found)
    throw new CaissonError('not_possible_now', `--web: ${found.problem}`)
  const own = found === undefined ? await startBrief(io, host, workspace) : undefined
  const url = own?.url ?? (await findAddress(directory))
  if (url === undefined)
    throw new CaissonError('not_possible_now', '--web: the running service names no address of its page', {
      remedy: 'restart it',
    })
  const page = { url, directory }
  let told: string | undefined
  return {
    isOwn: own !== undefined,
    tell: async (runId) => {
      told = runId
      // In the place of the status line.
      const start = io.stderr.isTTY === true ? '\r\x1b[K' : ''
      say(`${start}Page: ${await pageAddress(io.stderr, page, runId)}`)
    },
    stay: async (isDecided) => {
      if (own === undefined || told === undefined) return
      const { changes, applied } = (await host.runs.fold(told)).state
      const waiting = isDecided || (applied ?? 0) > 0 ? 0 : (changes?.entries ?? 0)
      const { activeRuns } = own
      if (waiting + activeRuns === 0) return
      const what = [
        ...(waiting === 0 ? [] : [`${formatCount(waiting, 'change')} to review`]),
        ...(activeRuns === 0 ? [] : [`${formatCount(activeRuns, 'run')} at work`]),
      ]
      say(`The page has ${what.join(' and ')}. It stays until you press Ctrl-C.`)
      await endSignal()
    },
    [Symbol.asyncDispose]: async () => await own?.close(),
  }
}

/** On the usual port, or a free one when another program has that. */
async function startBrief(io: Io, host: Host, workspace: string): Promise<Service> {
  const options = { host, version: io.version, workspaces: [workspace], isBrief: true }
  try {
    return await Service.start(options)
  } catch (error) {
    const { cause } = Object(error) as { cause?: unknown }
    if (errnoOf(cause) !== 'EADDRINUSE') throw error
    return await Service.start({ ...options, port: 0 })
  }
}

/**
 * In a terminal with the token in the fragment, which no server gets: who opens the page is signed in. A log, such as that
 * of a unit of systemd, never has the token.
 * @param output where the address is written. @param runId what the page opens; absent: the list of runs
 */
export async function pageAddress(
  output: Writable & { isTTY?: boolean },
  { url, directory }: PageService,
  runId?: string,
): Promise<string> {
  const token = output.isTTY === true ? await findToken(directory) : undefined
  if (token === undefined) return runId === undefined ? `${url}/` : `${url}/#/runs/${runId}`
  return `${url}/#token=${token}${runId === undefined ? '' : `&run=${runId}`}`
}

/** The name of the first signal that ends this process in order. The next one ends it at once. */
export async function endSignal(): Promise<string> {
  const signals = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const
  const ended = new AbortController()
  try {
    return await Promise.race(
      signals.map(async (signal) => {
        await once(process, signal, { signal: ended.signal })
        return signal
      }),
    )
  } finally {
    ended.abort()
  }
}
