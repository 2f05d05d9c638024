/** What a run has proved, and what it has to prove before an answer counts. Knows calls, never texts. */
import { CaissonError } from '#specs/errors.ts'
import type { ActionEvidence, CompleteRequest } from './types.ts'

const kinds: readonly ActionEvidence[] = ['interaction', 'read', 'write', 'external_action', 'artifact']

export class Evidence {
  /** Empty: nothing. */
  readonly #required: ReadonlySet<ActionEvidence>
  readonly #seen: Set<ActionEvidence>

  /** @throws {CaissonError} `invalid_options` for an unknown kind */
  constructor({ requiredEvidence = false, initialEvidence = [] }: CompleteRequest) {
    const required =
      typeof requiredEvidence === 'boolean'
        ? kinds.filter((kind) => requiredEvidence && kind !== 'interaction')
        : [requiredEvidence].flat()
    this.#required = new Set(check('requiredEvidence', required))
    this.#seen = new Set(check('initialEvidence', initialEvidence))
  }

  get isRequired(): boolean {
    return this.#required.size > 0
  }

  /** Whether an answer counts. */
  get isEnough(): boolean {
    return !this.isRequired || [...this.#required].some((kind) => this.#seen.has(kind))
  }

  get seen(): readonly ActionEvidence[] {
    return kinds.filter((kind) => this.#seen.has(kind))
  }

  /** For the model. */
  get need(): string {
    return [...this.#required].join(' or ')
  }

  add(kind: ActionEvidence | undefined): void {
    if (kind !== undefined) this.#seen.add(kind)
  }
}

function check(option: string, given: unknown): readonly ActionEvidence[] {
  if (Array.isArray(given) && given.every((kind) => kinds.includes(kind))) return given
  throw new CaissonError('invalid_options', `${option} must be of ${kinds.join(', ')}`)
}
