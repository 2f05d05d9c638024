/** Tells the watchers of a run every few seconds what its VM uses of the host; reads nothing while nobody watches. */
import type { VmUsage } from '../../control/messages.ts'
import { cpuPercentBetween, readUsage } from '../../control/usage.ts'
import type { Vm } from '../../vm/vm.ts'
import { resolveSize } from '../../vm/vm-options.ts'
import type { GuestRecord } from './guest-parts.ts'

const intervalMs = 3_000

export class VmUse implements Disposable {
  readonly #record: Pick<GuestRecord, 'feed' | 'delta'>
  /** The running VM; undefined while it is saved. */
  readonly #current: () => Vm | undefined
  readonly #timer: NodeJS.Timeout
  #before: { readonly pid: number; readonly usage: VmUsage } | undefined

  constructor(record: Pick<GuestRecord, 'feed' | 'delta'>, current: () => Vm | undefined) {
    this.#record = record
    this.#current = current
    this.#timer = setInterval(() => void this.#tell(), intervalMs).unref()
  }

  [Symbol.dispose](): void {
    clearInterval(this.#timer)
  }

  async #tell(): Promise<void> {
    const vm = this.#record.feed.isWatched ? this.#current() : undefined
    if (vm === undefined) return
    const usage = await readUsage(vm.pid, vm.plan.scratch.file)
    if (usage === null) return
    const before = this.#before?.pid === vm.pid ? this.#before.usage : undefined
    this.#before = { pid: vm.pid, usage }
    const cpuPercent = cpuPercentBetween(before, usage)
    this.#record.delta('root', {
      type: 'vm-use',
      memoryBytes: usage.residentBytes,
      memoryMaxBytes: resolveSize(vm.plan.options).memoryBytes,
      ...(cpuPercent === null ? {} : { cpuPercent }),
      diskBytes: usage.diskBytes,
    })
  }
}
