/** Those who use the fleet: they start runs and answer questions, each time at any host that is there. */
import { setTimeout as sleep } from 'node:timers/promises'
import { ServiceError } from '../../client/index.ts'
import type { Random } from '../soak/random.ts'
import type { FleetHost } from './fleet-host.ts'
import type { FleetTask } from './tasks.ts'

const callMs = 20_000
const memoryBytes = 256 * 1024 ** 2
const diskBytes = 64 * 1024 ** 2

export class People {
  readonly #random: Random
  readonly #hosts: readonly FleetHost[]
  /** Answers that a host took, by run and question: more than one were a question decided twice. */
  readonly taken = new Map<string, number>()
  /** Questions that somebody is about to answer. */
  readonly #seen = new Set<string>()

  constructor(random: Random, hosts: readonly FleetHost[]) {
    this.#random = random
    this.#hosts = hosts
  }

  /** A repeated request under the same key is the same run, at whichever host. @returns its id */
  async start({ name, plan }: FleetTask, outsidePort: number): Promise<string> {
    const run = await this.atAnyHost(
      async ({ client }) =>
        await client.call('putRun', {
          params: { key: name },
          body: {
            prompt: plan.goal,
            plan: { from: plan as never },
            approvals: { mode: 'all', interactive: true },
            egress: {
              rules: [{ effect: 'allow', host: '127.0.0.1', schemes: ['http'], ports: [outsidePort] }],
            },
            vm: { memoryBytes, diskBytes, sleepAfterMs: 300 },
          } as never,
          signal: AbortSignal.timeout(callMs),
        } as never),
    )
    return (run as { id: string }).id
  }

  /** Answers each question after up to 20 s, sometimes at two hosts at once, until the signal is aborted. */
  async answer(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      const { approvals } = await this.atAnyHost(
        async ({ client }) =>
          await client.call('listApprovals', { signal: AbortSignal.timeout(callMs) } as never),
      )
      for (const { runId, approval } of approvals) {
        const key = `${runId} ${approval.approvalId}`
        if (this.#seen.has(key)) continue
        this.#seen.add(key)
        void this.#answerLater(key, runId, approval.approvalId)
      }
      await sleep(500)
    }
  }

  /** Tries one host after another until one answers, or refuses for good. */
  async atAnyHost<T>(work: (host: FleetHost) => Promise<T>): Promise<T> {
    for (;;) {
      const hosts = this.#hosts.filter(({ isAway }) => !isAway)
      const [first, ...rest] = hosts
      try {
        if (first !== undefined) return await work(this.#random.of([first, ...rest]))
      } catch (error) {
        if (
          error instanceof ServiceError &&
          error.status < 500 &&
          error.status !== 429 &&
          error.code !== 'no_answer'
        )
          throw error
      }
      await sleep(200)
    }
  }

  async #answerLater(key: string, runId: string, approvalId: string): Promise<void> {
    await sleep(this.#random.between(0, 20_000))
    const atOnce = this.#random.next() < 0.3 ? 2 : 1
    await Promise.all(Array.from({ length: atOnce }, () => this.#answerOnce(key, runId, approvalId)))
    // One that was withdrawn is asked again under the same id, and answered again.
    setTimeout(() => void this.#seen.delete(key), 30_000).unref()
  }

  async #answerOnce(key: string, run: string, approval: string): Promise<void> {
    const body = { decision: 'allow', scope: 'once', answer: 'yes' } as const
    await this.atAnyHost(async ({ client }) => {
      await client.call('answerApproval', {
        params: { run, approval },
        body,
        signal: AbortSignal.timeout(callMs),
      } as never)
      this.taken.set(key, (this.taken.get(key) ?? 0) + 1)
    }).catch((error: unknown) => {
      // Somebody else was first, or the run had ended.
      if (!(error instanceof ServiceError)) throw error
    })
  }
}
