/**
 * The option `context`: facts as they are, sections for the task, and functions that give a section before each request of
 * an agent, which are asked as hooks.
 */
import { CaissonError, errorMessage } from '#specs/errors.ts'
import { AwakeLimit } from '#specs/node/awake-timer.ts'
import {
  type RunSection,
  type SectionPlace,
  sectionDefaultTokens,
  sectionsMaxCount,
  turnSectionsMaxCount,
} from '#specs/protocol/context-section.ts'
import { limits } from '#specs/protocol/limits.ts'
import { codeHook } from './hooks/code-hook.ts'
import type { Hook } from './hooks/hook.ts'

/** What the model reads of one subject beside the task. */
export interface ContextSection {
  /** The text, or a function that gives it; without a text the section is left out. */
  readonly text: string | ContextText
  /** When a function is called: once before the run, or before each request of an agent to its model. Default `run`. */
  readonly per?: 'run' | 'turn'
  /** The text is cut in its middle to about as many tokens. Default 4,000. */
  readonly maxTokens?: number
  /** Ahead of what workspace, skills and memory say, or behind it. Default `before`. Not with `per: 'turn'`. */
  readonly place?: SectionPlace
  /** Who gave it, for model and journal. Default: the application. */
  readonly from?: string
}

/** Gives the text of a section. `agentPath` is absent before the run. `signal` ends what takes too long (30 s). */
export type ContextText = (about: {
  readonly runId: string
  readonly agentPath?: string
  readonly signal: AbortSignal
}) => string | undefined | Promise<string | undefined>

export type ContextOption = Readonly<Record<string, string | ContextSection>>

/** Sections of each turn: their functions cannot be stored with a run. */
export type TurnContextOption = Readonly<Record<string, ContextSection & { readonly per: 'turn' }>>

/** Without functions: what those of the run gave is in its task, and those of a turn are given again. */
export function storedContext(given: ContextOption): ContextOption {
  const stored = Object.entries(given).filter(
    ([, value]) => typeof value === 'string' || typeof value.text === 'string',
  )
  return Object.fromEntries(stored)
}

interface ResolvedContext {
  readonly context?: Readonly<Record<string, string>>
  readonly sections?: readonly RunSection[]
  readonly hooks: readonly Hook[]
}

const textTimeoutMs = 30_000
const application = 'the application'

/** Calls the functions of the run. @throws {CaissonError} `invalid_options` when one of them fails */
export async function resolveContext(
  given: ContextOption,
  runId: string,
  signal?: AbortSignal,
): Promise<ResolvedContext> {
  const facts: [string, string][] = []
  const sections: RunSection[] = []
  const hooks: Hook[] = []
  for (const [name, value] of Object.entries(given)) {
    if (typeof value === 'string') {
      facts.push([name, value])
      continue
    }
    const {
      text,
      per = 'run',
      place = 'before',
      maxTokens = sectionDefaultTokens,
      from = application,
    } = value
    if (per === 'turn') {
      hooks.push(turnHook(name, value, from))
      continue
    }
    const said = typeof text === 'string' ? text : await textOf(name, text, runId, signal)
    if (said !== '') sections.push({ name, from, text: said, maxTokens, place })
  }
  for (const [what, count, max] of [
    ['sections', sections.length, sectionsMaxCount],
    ["sections with per: 'turn'", hooks.length, turnSectionsMaxCount],
  ] as const)
    if (count > max) throw refused(`the context has ${count} ${what}, expected at most ${max}`)
  return {
    ...(facts.length === 0 ? {} : { context: Object.fromEntries(facts) }),
    ...(sections.length === 0 ? {} : { sections }),
    hooks,
  }
}

async function textOf(name: string, give: ContextText, runId: string, outer?: AbortSignal): Promise<string> {
  const what = `the section ${JSON.stringify(name)} of the context`
  using time = new AwakeLimit(textTimeoutMs, { unref: true })
  const signal = outer === undefined ? time.signal : AbortSignal.any([outer, time.signal])
  const ended = Promise.withResolvers<never>()
  const onAbort = (): void => ended.reject(signal.reason)
  signal.addEventListener('abort', onAbort, { once: true })
  let text: unknown
  try {
    signal.throwIfAborted()
    text = await Promise.race([give({ runId, signal }), ended.promise])
  } catch (error) {
    outer?.throwIfAborted()
    const why = time.isOver ? `its function took longer than ${textTimeoutMs / 1000} s` : errorMessage(error)
    throw refused(`${what} cannot be made: ${why}`)
  } finally {
    signal.removeEventListener('abort', onAbort)
  }
  if (text !== undefined && typeof text !== 'string')
    throw refused(`${what} cannot be made: its function gave no text`)
  if ((text?.length ?? 0) > limits.documentMaxChars)
    throw refused(`${what} has ${text?.length} characters, expected at most ${limits.documentMaxChars}`)
  return text ?? ''
}

/** A function that fails leaves its section out. */
function turnHook(name: string, { text, maxTokens }: ContextSection, from: string): Hook {
  return codeHook({
    point: 'before-turn',
    name: from,
    timeoutMs: textTimeoutMs,
    onFailure: 'allow',
    run: async ({ runId, agentPath }, { signal }) => {
      const said = typeof text === 'string' ? text : await text({ runId, agentPath, signal })
      if (said === undefined || said === '') return undefined
      return { context: [{ name, text: said, ...(maxTokens === undefined ? {} : { maxTokens }) }] }
    },
  })
}

function refused(message: string): CaissonError {
  return new CaissonError('invalid_options', message)
}
