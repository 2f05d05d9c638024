/**
 * Whether a VM can be started on this machine, by the checks of `caisson doctor`. What it tells callers is fixed text, since
 * anybody may ask: what was seen, with its paths, is for the log.
 */
import { errorMessage } from '#specs/errors.ts'
import type { Finding, Host } from '../index.ts'
import { Latest } from './latest.ts'
import { Refusal } from './problems.ts'

const keepMs = 5_000
const waitMs = 5_000

/** What a check means when it fails, and what to do. */
const reasons: Readonly<Record<string, readonly [string, string]>> = {
  node: ['Node.js is too old', 'install Node.js 24 or newer'],
  qemu: ['QEMU cannot be run', 'install qemu-system-x86'],
  programs: ['the program flock is missing', 'install util-linux'],
  image: ['there is no VM image that can be booted', 'build it: caisson image build'],
  confinement: [
    'nothing would confine QEMU',
    'install bubblewrap and allow unprivileged user namespaces, or use a machine with KVM',
  ],
  memory: ['too little memory is available', 'end other programs, or use a machine with more memory'],
  'disk-state': [
    'the disk of the state folder is full',
    'free disk space (caisson clean), or set CAISSON_HOME to a folder on a larger disk',
  ],
  'disk-cache': [
    'the disk of the cache folder is full',
    'free disk space (caisson clean), or set CAISSON_CACHE to a folder on a larger disk',
  ],
  folders: [
    'the state folders cannot be used',
    'correct their owner and permissions, or set CAISSON_HOME and CAISSON_CACHE',
  ],
  configuration: [
    'the configuration has an error that stops runs',
    'correct it: caisson config check names it',
  ],
}
const unknownReason = ['a check of this machine failed', 'run caisson doctor'] as const

export interface ReadinessOptions {
  readonly doctor: Host['doctor']
  readonly log: (line: Readonly<Record<string, unknown>>) => void
  /** As of {@link Latest}. */
  readonly now?: () => number
}

export class Readiness {
  readonly #checks: Latest<readonly Finding[]>
  readonly #log: ReadinessOptions['log']
  /** Failed checks that the log has. */
  #logged = ''

  constructor({ doctor, log, now }: ReadinessOptions) {
    this.#log = log
    this.#checks = new Latest(
      async () => {
        const failed = (await doctor()).filter(stopsVms)
        this.#note(failed)
        return failed
      },
      { keepMs, waitMs, ...(now === undefined ? {} : { now }) },
    )
  }

  /** Checks that keep VMs from starting; none: a VM can start. Null: unknown. */
  async failed(): Promise<readonly Finding[] | null> {
    const reading = await this.#checks.get()
    return reading.ok ? reading.value : null
  }

  /** @throws {Refusal} 503 with each reason and what to do */
  async require(): Promise<void> {
    const reading = await this.#checks.get()
    if (!reading.ok) {
      this.#log({ level: 'warn', message: 'this machine was not checked', cause: errorMessage(reading.why) })
      throw new Refusal(503, 'not_ready', 'this machine could not be checked in time', {
        remedy: 'ask again; if that does not help, run caisson doctor on the machine',
      })
    }
    if (reading.value.length === 0) return
    const errors = reading.value.map(({ id }) => {
      const [what, remedy] = reasons[id] ?? unknownReason
      return { field: id, message: `${what}; ${remedy}` }
    })
    const [first] = errors
    throw new Refusal(503, 'not_ready', `no VM can be started: ${first?.message}`, {
      remedy: 'run caisson doctor as the user of the service; it shows what was found',
      errors,
    })
  }

  /** Once for each change. */
  #note(failed: readonly Finding[]): void {
    const names = failed.map(({ id }) => id).join(',')
    if (names === this.#logged) return
    this.#logged = names
    const checks = failed.map(({ id, seen, remedy }) => ({ check: id, seen, remedy }))
    if (failed.length === 0) this.#log({ level: 'info', message: 'VMs can be started again' })
    else this.#log({ level: 'warn', message: 'no VM can be started', checks })
  }
}

/** An image that is not built yet counts: building takes a network and minutes. */
function stopsVms({ id, status, isUnsafe }: Finding): boolean {
  return status === 'fail' || isUnsafe === true || (id === 'image' && status !== 'ok')
}
