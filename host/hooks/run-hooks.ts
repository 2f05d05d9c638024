/**
 * The hooks of one run: which there are at a point, what they said together, and the journal of each. Asked one after the other
 * in the order of the configuration, then of the application; the first no ends it, and what one changed the next one sees.
 */

import { randomBytes } from 'node:crypto'
import { errorMessage } from '#specs/errors.ts'
import type { ApprovalDecision, ApprovalRequest } from '#specs/protocol/approval.ts'
import { toCanonicalJson } from '#specs/protocol/canonical-json.ts'
import { type GivenTurnSection, turnSectionsMaxCount } from '#specs/protocol/context-section.ts'
import type { HostEvent } from '#specs/protocol/event.ts'
import { type AgentHook, AgentHookPoint, type HookPoint, isAskedAt } from '#specs/protocol/hook.ts'
import { limits } from '#specs/protocol/limits.ts'
import {
  type Hook,
  type HookAnswer,
  type HookInput,
  type HookSubjects,
  type HookVerdict,
  hookVersion,
} from './hook.ts'

interface RunHooksOptions {
  readonly runId: string
  readonly hooks: readonly Hook[]
  /** Journals an event; resolves when it is kept. */
  readonly note: (event: HostEvent) => Promise<unknown>
  /** Puts a call before a person, whatever rules and modes say; the agent does not know that it is asked. */
  readonly ask: (request: ApprovalRequest, signal: AbortSignal) => Promise<ApprovalDecision>
  /** Milliseconds, for durations. */
  readonly now?: () => number
}

/** What the hooks of one point said together. */
export interface HooksDecision {
  readonly decision: 'allow' | 'deny'
  readonly reason?: string
  /** Before a call, when a hook changed them. */
  readonly arguments?: Readonly<Record<string, unknown>>
  readonly note?: string
  /** Before a request of the model; the first hook to give a name gives the section. */
  readonly context?: readonly GivenTurnSection[]
  /** Whether a person allowed the call, as a hook wanted. */
  readonly byPerson?: boolean
}

/** Hooks that are asked at once; of commands each is a process. */
const parallelMax = 8

export class RunHooks {
  readonly #options: RunHooksOptions
  readonly #ending = new AbortController()
  readonly #queue: (() => void)[] = []
  #free = parallelMax

  constructor(options: RunHooksOptions) {
    this.#options = options
  }

  /** Where the agent is to ask, and about which tools. */
  get ofAgent(): readonly AgentHook[] {
    return agentHooksOf(this.#options.hooks)
  }

  has(point: HookPoint, tool?: string): boolean {
    return this.#at(point, tool).length > 0
  }

  /**
   * The answer of the hooks at a point; a denial once the run is over.
   * @param signal aborted when the answer is no longer needed
   */
  async ask<P extends HookPoint>(
    point: P,
    subject: HookSubjects[P],
    signal?: AbortSignal,
  ): Promise<HooksDecision> {
    const ends = signal === undefined ? this.#ending.signal : AbortSignal.any([signal, this.#ending.signal])
    const asked = { point, subject } as Asked
    let changed: HooksDecision['arguments']
    let byPerson = false
    const notes: string[] = []
    const context = new Map<string, GivenTurnSection>()
    for (const hook of this.#at(point, toolOf(asked))) {
      const now = changed === undefined ? asked : withArguments(asked, changed)
      const verdict = await this.#inTurn(() => this.#askOne(hook, now, ends))
      const { decision, reason, note } = verdict
      if (decision === 'deny') return { decision, reason: reason ?? `the hook ${hook.name} said no` }
      // A person said yes to other arguments.
      if (verdict.arguments !== undefined) byPerson = false
      changed = verdict.arguments ?? changed
      if (note !== undefined) notes.push(note)
      for (const section of verdict.context ?? [])
        if (!context.has(section.name)) context.set(section.name, { ...section, from: sourceOf(hook) })
      if (decision !== 'ask') continue
      const answer = await this.#askPerson(
        hook,
        changed === undefined ? asked : withArguments(asked, changed),
        reason,
        ends,
      )
      if (answer.decision === 'deny') return { decision: 'deny', reason: reasonOfPerson(answer) }
      byPerson = true
    }
    const note = notes.join('\n').slice(0, limits.textMaxChars)
    return {
      decision: 'allow',
      ...(changed === undefined ? {} : { arguments: changed }),
      ...(note === '' ? {} : { note }),
      ...(context.size === 0 ? {} : { context: [...context.values()].slice(0, turnSectionsMaxCount) }),
      ...(byPerson ? { byPerson } : {}),
    }
  }

  /** Ends what runs; whatever is asked from now on is denied. */
  close(): void {
    this.#ending.abort('the run is over')
  }

  #at(point: HookPoint, tool?: string): Hook[] {
    return this.#options.hooks.filter((hook) => isAskedAt(hook, point, tool))
  }

  async #askOne(hook: Hook, asked: Asked, signal: AbortSignal): Promise<HookVerdict> {
    const { runId, note, now = () => performance.now() } = this.#options
    const startedAt = now()
    const input = { version: hookVersion, point: asked.point, runId, ...asked.subject } as HookInput
    // An unexpected exception counts as a failure too: it must not bypass a guard.
    const answer = await hook.ask(input, signal).catch((error: unknown) => failed(error))
    const verdict: HookVerdict = answer.ok
      ? answer.value
      : {
          decision: signal.aborted ? 'deny' : hook.onFailure,
          reason: `the hook ${hook.name} ${answer.error}`,
        }
    const { decision, reason, arguments: changed, note: said, context = [] } = verdict
    await note({
      type: 'hook-end',
      point: asked.point,
      hook: hook.name.slice(0, limits.lineMaxChars),
      ...placeOf(asked),
      decision,
      ...(reason === undefined ? {} : { reason: reason.slice(0, limits.textMaxChars) }),
      ...(changed === undefined
        ? {}
        : { arguments: toCanonicalJson(changed).slice(0, limits.documentMaxChars) }),
      ...(said === undefined ? {} : { note: said.slice(0, limits.textMaxChars) }),
      ...(context.length === 0 ? {} : { context }),
      ...(answer.ok ? {} : { failed: true }),
      durationMs: Math.max(0, Math.round(now() - startedAt)),
    })
    return verdict
  }

  async #askPerson(
    hook: Hook,
    asked: Asked,
    reason: string | undefined,
    signal: AbortSignal,
  ): Promise<ApprovalDecision> {
    if (asked.point !== 'before-tool') throw new TypeError('only a call is put before a person')
    const { agentPath, stepId, callId, tool, arguments: given, defaults } = asked.subject
    const shown = toCanonicalJson(given)
    // A person cannot approve what is not fully visible.
    if (shown.length > limits.documentMaxChars)
      return { decision: 'deny', hint: `the arguments are too long to be shown (${shown.length} characters)` }
    const why = reason === undefined ? '' : `: ${reason}`
    const request: ApprovalRequest = {
      // Drawn: under an id that the agent can guess it could have asked before, in words of its own.
      approvalId: `hook-${randomBytes(12).toString('hex')}`,
      runId: this.#options.runId,
      agentPath,
      stepId,
      callId,
      tool,
      arguments: shown,
      ...(defaults === undefined ? {} : { defaults: [...defaults] }),
      preview: `The hook ${hook.name} wants a person to decide about this call${why}`.slice(
        0,
        limits.textMaxChars,
      ),
    }
    return await this.#options.ask(request, signal)
  }

  async #inTurn<T>(work: () => Promise<T>): Promise<T> {
    if (this.#free === 0) await new Promise<void>((resolve) => this.#queue.push(resolve))
    else this.#free -= 1
    try {
      return await work()
    } finally {
      const next = this.#queue.shift()
      if (next === undefined) this.#free += 1
      else next()
    }
  }
}

/** A point with its input. */
type Asked = {
  readonly [P in HookPoint]: { readonly point: P; readonly subject: HookSubjects[P] }
}[HookPoint]

function toolOf({ point, subject }: Asked): string | undefined {
  return point === 'before-tool' || point === 'after-tool' ? subject.tool : undefined
}

function withArguments(asked: Asked, changed: Readonly<Record<string, unknown>>): Asked {
  if (asked.point !== 'before-tool') return asked
  // What the hook gave is no default of the tool.
  const { defaults: _, ...subject } = asked.subject
  return { ...asked, subject: { ...subject, arguments: changed } }
}

/** The hook as the source of a section: a name stands in a tag of the prompt. */
function sourceOf({ name }: Hook): string {
  return (
    name
      .replaceAll(/[<>\s]+/g, ' ')
      .trim()
      .slice(0, 100)
      .toWellFormed() || 'a hook'
  )
}

function placeOf({ subject }: Asked): { agentPath?: string; stepId?: string; callId?: string } {
  if (!('agentPath' in subject)) return {}
  const { agentPath, stepId } = subject
  return { agentPath, stepId, ...('callId' in subject ? { callId: subject.callId } : {}) }
}

function reasonOfPerson({ hint }: ApprovalDecision): string {
  return hint === undefined || hint.trim() === '' ? 'a person said no' : `a person said no: ${hint}`
}

function failed(error: unknown): HookAnswer {
  return { ok: false, error: `could not be asked: ${errorMessage(error)}` }
}

/** The hooks at which the agent must ask. */
export function agentHooksOf(hooks: readonly Hook[]): AgentHook[] {
  return hooks.flatMap(({ point, tools }) => {
    const known = AgentHookPoint.safeParse(point)
    return known.success ? [{ point: known.data, ...(tools === undefined ? {} : { tools: [...tools] }) }] : []
  })
}
