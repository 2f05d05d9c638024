/**
 * A run as one step of a workflow engine: started by the step's key, waited for until its end, cancelled when the step is.
 * A step that is carried out again, by whatever process, finds the same run and waits for it.
 */
import { type ServiceCall, type ServiceClient, ServiceError, type ServiceReply } from './service-client.ts'

export interface RunToEndOptions {
  /** The same for each attempt of the step, and of no other step: up to 128 of `A-Z a-z 0-9 . _ : ~ -`. */
  readonly key: string
  /** What starts the run, or one that carries out a workflow. The same for each attempt. */
  readonly run: ServiceCall<'putRun'>['body'] | ServiceCall<'putWorkflowRun'>['body']
  readonly signal?: AbortSignal
  /**
   * What an abort of `signal` does with the run, or a function of its reason that says so. Default `cancel`; `leave` where the
   * signal says no more than that this process gives the step up.
   */
  readonly onAbort?: 'cancel' | 'leave' | ((reason: unknown) => 'cancel' | 'leave')
  /** Called when the run is known, with each attempt of the step. */
  readonly onRun?: (run: ServiceReply<'putRun'>) => void | Promise<void>
  /** Called for each question that the run waits for, once in each attempt of the step. It needs the scope `read`. */
  readonly onQuestion?: (question: ServiceReply<'listApprovals'>['approvals'][number]) => void | Promise<void>
  /** Time without an answer of the service, ms, before this gives up; the engine tries the step again. Default 5 minutes. */
  readonly patienceMs?: number
}

const waitMs = 50_000
/** The same while a known question waits, so that the next one is seen. */
const waitBesideQuestionMs = 10_000
const cancelMs = 15_000
const defaultPatienceMs = 300_000
const retryFirstMs = 200
const retryLongestMs = 10_000

/**
 * Starts a run by its key, or finds it, and waits for its end. A run that failed or was cancelled is a result too, with its
 * `outcome`. @throws {ServiceError} when the service refuses the run, or `signal.reason`
 */
export async function runToEnd(
  client: ServiceClient,
  options: RunToEndOptions,
): Promise<ServiceReply<'getResult'>> {
  const { key, signal, onAbort = 'cancel', onRun } = options
  signal?.throwIfAborted()
  try {
    // Not with the signal: a start that is given up would leave a run that nobody cancels.
    const run = await patiently(options, () => start(client, options))
    await onRun?.(run)
    return await resultOf(client, run.id, options)
  } catch (error) {
    if (signal?.aborted !== true) throw error
    const effect = typeof onAbort === 'function' ? onAbort(signal.reason) : onAbort
    if (effect === 'cancel') await cancelByKey(client, key)
    throw signal.reason
  }
}

async function start(client: ServiceClient, { key, run }: RunToEndOptions): Promise<ServiceReply<'putRun'>> {
  const params = { key }
  return 'workflow' in run
    ? await client.call('putWorkflowRun', { params, body: run })
    : await client.call('putRun', { params, body: run })
}

async function resultOf(
  client: ServiceClient,
  id: string,
  options: RunToEndOptions,
): Promise<ServiceReply<'getResult'>> {
  const params = { run: id }
  const told = new Set<string>()
  let until: 'end' | 'attention' = options.onQuestion === undefined ? 'end' : 'attention'
  const within = options.signal === undefined ? {} : { signal: options.signal }
  for (;;) {
    const query = { waitMs: told.size > 0 && until === 'end' ? waitBesideQuestionMs : waitMs, until }
    const run = await patiently(options, () => client.call('getRun', { params, query, ...within }))
    if (run.end !== null)
      return await patiently(options, () =>
        client.call('getResult', { params, query: { waitMs }, ...within }),
      )
    if (options.onQuestion === undefined) continue
    const isWaiting = run.pendingApprovals > 0 || run.status === 'sleeping'
    if (isWaiting) await tellQuestions(client, id, told, options)
    until = isWaiting ? 'end' : 'attention'
  }
}

async function tellQuestions(
  client: ServiceClient,
  id: string,
  told: Set<string>,
  options: RunToEndOptions,
): Promise<void> {
  const { approvals } = await patiently(options, () => client.call('listApprovals', { query: { run: id } }))
  for (const question of approvals) {
    const { approvalId } = question.approval
    if (told.has(approvalId)) continue
    told.add(approvalId)
    await options.onQuestion?.(question)
  }
}

/** Repeats what the service did not answer or could not do now, for as long as its caller is patient. */
async function patiently<T>(
  { signal, patienceMs = defaultPatienceMs }: Pick<RunToEndOptions, 'signal' | 'patienceMs'>,
  work: () => Promise<T>,
): Promise<T> {
  const giveUpAt = Date.now() + patienceMs
  for (let pauseMs = retryFirstMs; ; pauseMs = Math.min(2 * pauseMs, retryLongestMs)) {
    try {
      return await work()
    } catch (error) {
      const demandedMs = error instanceof ServiceError ? (error.retryAfterMs ?? 0) : 0
      const nextMs = Math.max(pauseMs, demandedMs)
      if (signal?.aborted === true || !isPassing(error) || Date.now() + nextMs > giveUpAt) throw error
      await sleep(nextMs, signal)
      signal?.throwIfAborted()
    }
  }
}

/** Whether the same request may be answered later. */
function isPassing(error: unknown): boolean {
  // A connection that was refused or broke off.
  if (!(error instanceof ServiceError)) return error instanceof TypeError
  // The result of a run that another process is about to leave.
  return [429, 502, 503, 504].includes(error.status) || error.code === 'not_possible_now'
}

/** Its caller is being cancelled itself, so it waits for this only so long. */
async function cancelByKey(client: ServiceClient, key: string): Promise<void> {
  const params = { run: key }
  await patiently({ patienceMs: cancelMs }, () =>
    client.call('cancelRun', { params, body: {}, signal: AbortSignal.timeout(cancelMs) }),
  ).catch((error: unknown) => {
    // It never began, or has ended.
    if (!(error instanceof ServiceError) || ![404, 409].includes(error.status)) throw error
  })
}

async function sleep(ms: number, signal: AbortSignal | undefined): Promise<void> {
  await new Promise<void>((resolve) => {
    const over = (): void => {
      clearTimeout(timer)
      signal?.removeEventListener('abort', over)
      resolve()
    }
    const timer = setTimeout(over, ms)
    signal?.addEventListener('abort', over, { once: true })
  })
}
