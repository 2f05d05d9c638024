/** Hooks that are functions of the application. What one throws is its failure, not the run's. */
import { CaissonError, errorMessage } from '#specs/errors.ts'
import { AwakeLimit } from '#specs/node/awake-timer.ts'
import type { HookPoint } from '#specs/protocol/hook.ts'
import { meantToolName } from '#specs/protocol/tool-names.ts'
import {
  defaultOnFailure,
  type Hook,
  type HookAnswer,
  type HookInput,
  type HookVerdict,
  readVerdict,
} from './hook.ts'

/** What a function may say; nothing means that it allows. */
export type CodeVerdict = Partial<HookVerdict> | undefined

/** One hook of the application; its input depends on its point. */
export type CodeHook = { readonly [P in HookPoint]: CodeHookAt<P> }[HookPoint]

export interface CodeHookAt<P extends HookPoint> {
  readonly point: P
  /** For the journal; absent: `the application`. */
  readonly name?: string
  /** Of the points of tools: names, `*` for any run of characters; absent: all. */
  readonly tools?: readonly string[]
  /** Default 30 s. */
  readonly timeoutMs?: number
  /** What counts when it throws or takes too long; default: `deny` before, `allow` after. */
  readonly onFailure?: 'allow' | 'deny'
  /** @param context `signal`: aborted when the answer is no longer needed */
  run(input: HookInput<P>, context: { readonly signal: AbortSignal }): CodeVerdict | Promise<CodeVerdict>
}

export const defaultTimeoutMs = 30_000
/** Longer timers overflow in Node and fire at once. */
const timeoutMaxMs = 2 ** 31 - 1

/** @throws {CaissonError} `invalid_options` where it names a tool by a name that no call bears: it would guard nothing */
export function codeHook(hook: CodeHook): Hook {
  const { point, name = 'the application', tools, onFailure = defaultOnFailure(point) } = hook
  const timeoutMs = Math.min(hook.timeoutMs ?? defaultTimeoutMs, timeoutMaxMs)
  for (const tool of tools ?? []) {
    const meant = meantToolName(tool)
    if (meant !== undefined)
      throw new CaissonError('invalid_options', `a hook is about the tool ${tool}, which is called ${meant}`)
  }
  return {
    name,
    point,
    ...(tools === undefined ? {} : { tools }),
    onFailure,
    ask: async (input, signal) => {
      using time = new AwakeLimit(timeoutMs, { unref: true })
      const ends = AbortSignal.any([signal, time.signal])
      const over = Promise.withResolvers<HookAnswer>()
      const onAbort = (): void =>
        over.resolve({
          ok: false,
          error: time.isOver ? `did not answer within ${timeoutMs / 1000} s` : 'was not waited for',
        })
      ends.addEventListener('abort', onAbort, { once: true })
      if (ends.aborted) onAbort()
      try {
        // The point says what the input is; the union of all points cannot.
        const run = hook.run as (
          input: HookInput,
          context: { signal: AbortSignal },
        ) => ReturnType<CodeHook['run']>
        const answer = (async (): Promise<HookAnswer> =>
          readVerdict((await run.call(hook, input, { signal: ends })) ?? {}, point))()
        answer.catch(() => undefined)
        return await Promise.race([answer, over.promise])
      } catch (error) {
        return {
          ok: false,
          error: `threw: ${errorMessage(error)}`.slice(0, 2_000),
        }
      } finally {
        ends.removeEventListener('abort', onAbort)
      }
    },
  }
}
