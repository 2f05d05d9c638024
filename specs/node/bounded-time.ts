/**
 * Runs synchronous work on untrusted input with a time limit: a backtracking pattern or exponential references may
 * never end. Blocks the process meanwhile, so the limit must be short.
 */
import { isNativeError } from 'node:util/types'
import { type Context, createContext, Script } from 'node:vm'

interface Sandbox extends Context {
  work: (() => void) | undefined
}

let made: { readonly script: Script; readonly sandbox: Sandbox } | undefined

/**
 * Returns the result of `work` and rethrows its errors. Work that runs out of time is done once more: the machine may have
 * been busy or suspended, and only work that is too slow runs out again.
 *
 * @param work without effects @param timeoutMs of each of the two
 * @throws {Error} with the code `ERR_SCRIPT_EXECUTION_TIMEOUT`
 */
export function withinTime<T>(work: () => T, timeoutMs: number): T {
  try {
    return runOnce(work, timeoutMs)
  } catch (error) {
    if (!isOutOfTime(error)) throw error
    return runOnce(work, timeoutMs)
  }
}

function runOnce<T>(work: () => T, timeoutMs: number): T {
  const sandbox: Sandbox = { work: undefined }
  made ??= { script: new Script('work()'), sandbox: createContext(sandbox) as Sandbox }
  const { script, sandbox: context } = made
  let result: { readonly value: T } | undefined
  context.work = () => {
    result = { value: work() }
  }
  try {
    // The context is not a security boundary: `work` is our own code. It is needed for V8's watchdog.
    script.runInContext(context, { timeout: timeoutMs })
  } finally {
    context.work = undefined
  }
  if (result === undefined) throw new Error('the work was not done')
  return result.value
}

/** Whether `error` is the timeout. It comes from the script's context, which has its own `Error`. */
export function isOutOfTime(error: unknown): boolean {
  return isNativeError(error) && 'code' in error && error.code === 'ERR_SCRIPT_EXECUTION_TIMEOUT'
}
