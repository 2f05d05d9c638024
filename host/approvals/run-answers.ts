/**
 * What people answered for the rest of a run: each answer applies to later calls of its tool, to the same command, or to
 * network access, until it is revoked or expires. A later answer about the same replaces an earlier one.
 */
import type { AccessQuestion, ApprovalRequest } from '#specs/protocol/approval.ts'
import type { AccessReach } from '#specs/protocol/egress.ts'
import { RUN_ANSWERS_MAX } from '#specs/protocol/run-state.ts'
import { commandOf } from './calls.ts'
import type { DecisionRecord } from './decisions.ts'

type Asked = Pick<ApprovalRequest, 'approvalId' | 'tool' | 'arguments'>

/** An answer about network access, as its rules are made of it. */
export interface NetworkAnswer {
  readonly decision: 'allow' | 'deny'
  readonly reach: AccessReach
  /** Normalized URL. */
  readonly address: string
}

interface HeldAnswer {
  readonly approvalId: string
  readonly ruling: DecisionRecord
  readonly network?: NetworkAnswer
}

export class RunAnswers {
  readonly #now: () => number
  /** By tool, by command, or by address and reach; oldest first. */
  readonly #held = new Map<string, HeldAnswer>()

  /** @param now ms since 1970 */
  constructor(now: () => number = Date.now) {
    this.#now = now
  }

  /** @returns the command that the answer is about; undefined: every call of the tool */
  add(asked: Asked, { plan: _, ...ruling }: DecisionRecord): string | undefined {
    const command = ruling.reach === 'command' ? commandOf(asked) : undefined
    this.#hold(keyOfAnswer(asked, ruling), { approvalId: asked.approvalId, ruling })
    return command
  }

  /** Holds an answer about network access, unless its question did not offer it. */
  addNetwork(asked: Asked, access: AccessQuestion, { plan: _, ...ruling }: DecisionRecord): void {
    const { decision } = ruling
    const offer = access.offers.find(({ reach }) => reach === ruling.reach)
    if (offer === undefined) return
    const network = { decision, reach: offer.reach, address: access.address }
    this.#hold(keyOfAnswer(asked, ruling, access), { approvalId: asked.approvalId, ruling, network })
  }

  /** Answers about network access, oldest first; each is the same object every time. */
  get network(): NetworkAnswer[] {
    return [...this.#held.values()].flatMap(({ network }) => (network === undefined ? [] : [network]))
  }

  /** The answer that applies to a call, as its decision. */
  find(asked: Asked): DecisionRecord | undefined {
    const command = commandOf(asked)
    const held =
      this.#valid(keyOf(asked.tool, undefined)) ??
      (command === undefined ? undefined : this.#valid(keyOf(asked.tool, command)))
    return held === undefined ? undefined : decisionBy(held.approvalId, held.ruling)
  }

  /** @returns whether it applied until now */
  revoke(approvalId: string): boolean {
    for (const [key, held] of this.#held) {
      if (held.approvalId !== approvalId) continue
      const isValid = this.#valid(key) !== undefined
      this.#held.delete(key)
      return isValid
    }
    return false
  }

  #hold(key: string, held: HeldAnswer): void {
    this.#held.delete(key)
    this.#held.set(key, held)
    const [oldest] = this.#held.keys()
    if (this.#held.size > RUN_ANSWERS_MAX && oldest !== undefined) this.#held.delete(oldest)
  }

  #valid(key: string): HeldAnswer | undefined {
    const held = this.#held.get(key)
    const { until } = held?.ruling ?? {}
    if (until === undefined || until > this.#now()) return held
    this.#held.delete(key)
    return undefined
  }
}

/** The decision of another question by the answer to this one. */
export function decisionBy(approvalId: string, { plan: _, ...ruling }: DecisionRecord): DecisionRecord {
  return { ...ruling, earlierId: approvalId }
}

/** A key that two answers share when the later one replaces the earlier. */
export function keyOfAnswer(
  asked: Omit<Asked, 'approvalId'>,
  { reach }: Pick<DecisionRecord, 'reach'>,
  access?: AccessQuestion,
): string {
  if (access !== undefined) return JSON.stringify([asked.tool, reach, access.address])
  return keyOf(asked.tool, reach === 'command' ? commandOf(asked) : undefined)
}

function keyOf(tool: string, command: string | undefined): string {
  return JSON.stringify(command === undefined ? [tool] : [tool, command])
}
