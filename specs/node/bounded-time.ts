/**
 * Work on what a model or a guest wrote that may take for ever (a pattern that backtracks, references that double at each level), ended
 * after a time although it never gives way. Everything else in the process waits meanwhile, so the time is short.
 */
import { isNativeError } from 'node:util/types'
import { type Context, createContext, Script } from 'node:vm'

interface Sandbox extends Context {
  work: (() => void) | undefined
}

let made: { readonly script: Script; readonly sandbox: Sandbox } | undefined

/** What `work` returns; what it throws is thrown. @throws Error with the code `ERR_SCRIPT_EXECUTION_TIMEOUT` */
export function withinTime<T>(work: () => T, timeoutMs: number): T {
  const sandbox: Sandbox = { work: undefined }
  made ??= { script: new Script('work()'), sandbox: createContext(sandbox) as Sandbox }
  const { script, sandbox: context } = made
  let result: { readonly value: T } | undefined
  context.work = () => {
    result = { value: work() }
  }
  try {
    // The context is no boundary here: `work` is our own. It is V8's watchdog that is wanted.
    script.runInContext(context, { timeout: timeoutMs })
  } finally {
    context.work = undefined
  }
  if (result === undefined) throw new Error('the work was not done')
  return result.value
}

/** Whether `error` says that the time was over. It is made in the script's context, where `Error` is another one. */
export function isOutOfTime(error: unknown): boolean {
  return isNativeError(error) && 'code' in error && error.code === 'ERR_SCRIPT_EXECUTION_TIMEOUT'
}
