/**
 * What `caisson/agent` takes from the host for a goal without a VM: the model's server with its key, the search, the
 * notes, the budget. The package does not export this file.
 */
import type { Dispatcher } from 'undici'
import { CaissonError } from '#specs/errors.ts'
import type { WebSearchAnswer, WebSearchRequest } from '#specs/protocol/egress.ts'
import type { Result } from '#specs/protocol/error.ts'
import type { GovernanceNote } from '#specs/protocol/extension.ts'
import { RunLimits, type Usage } from '#specs/protocol/task.ts'
import { checkHostOptions } from './check-options.ts'
import { withoutOverridden } from './config/overrides.ts'
import type { PriceConfig } from './config/schema.ts'
import { Budget, describeMissingPrice, priceOf, type Reservation } from './gateway/budget.ts'
import type { HostOptions } from './host-options.ts'
import { isNoteIn, MemoryService } from './memory/memory-service.ts'
import { keyOf } from './memory/note-storage.ts'
import { NoteStore } from './memory/note-store.ts'
import type { WireError } from './net/gateway-error.ts'
import { findPrice } from './providers/model-prices.ts'
import type { ModelProvider } from './providers/providers.ts'
import { Settings } from './settings.ts'
import { type Folders, prepareFolders, resolveFolders } from './state/folders.ts'
import { createSearch } from './web/search.ts'

export { ToolOption } from './check-options.ts'
export { newRunId } from './journal/run-store.ts'
export { answerOffline } from './offline-model/upstream.ts'
export { type PreparedTool, prepareHostTools } from './tools/host-tools.ts'

/** The server that answers, with its key; null: the offline model. */
export interface ChosenModel {
  readonly model: string
  readonly server:
    | (Pick<ModelProvider, 'kind' | 'deployment' | 'apiVersion'> & {
        readonly baseUrl: string
        readonly key: string | null
      })
    | null
  /** Null: unknown. */
  readonly price: PriceConfig | null
  /** Notices for the user. */
  readonly notes: readonly string[]
}

export type GoalSearch = (
  request: WebSearchRequest,
  signal: AbortSignal,
) => Promise<Result<WebSearchAnswer, WireError>>

export class WithoutVm {
  readonly #settings: Settings
  readonly #folders: Folders
  readonly #notes: NoteStore

  /** Reads no file. @throws {OptionsError} */
  constructor(options: Pick<HostOptions, 'config' | 'overrides' | 'env' | 'notes'>) {
    const config = checkHostOptions(options)
    const { overrides = [] } = options
    const env = withoutOverridden(options.env ?? process.env, overrides)
    const folders = resolveFolders(env)
    this.#folders = folders
    this.#settings = new Settings({ folders, env }, config, overrides)
    this.#notes = new NoteStore(folders, options.notes)
  }

  /** Fetches the key. @throws {CaissonError} `invalid_config`, `provider_unavailable` */
  async model(name: string | undefined): Promise<ChosenModel> {
    const choice = await this.#settings.chooseProvider(await this.#settings.config(), name)
    const provider = await this.#settings.fetchKey(choice)
    const { baseUrl, model, notes, key, kind, deployment, apiVersion } = provider
    const server =
      baseUrl === null
        ? null
        : {
            baseUrl,
            key: key?.reveal() ?? null,
            ...(kind === undefined ? {} : { kind }),
            ...(deployment === undefined ? {} : { deployment }),
            ...(apiVersion === undefined ? {} : { apiVersion }),
          }
    return { model, notes, server, price: priceOf(provider) }
  }

  /**
   * What one goal may use, by the `limits` of the configuration.
   * @param known of a chosen model. Absent: the application's own provider has the prices of the configuration
   * @throws {CaissonError} `invalid_config`, `price_unknown` for a limit of cost that nobody can count
   */
  async budget(model: string, known?: PriceConfig | null): Promise<GoalBudget> {
    const { limits: given, prices } = await this.#settings.config()
    const limits = RunLimits.parse(given)
    const price = known === undefined ? (findPrice('openai-compatible', model, prices) ?? null) : known
    const unpriced = describeMissingPrice(limits.maxCostUsd, price, model)
    if (unpriced !== null) throw new CaissonError('price_unknown', unpriced)
    return new GoalBudget(new Budget(limits, price, model))
  }

  /** Connections by the user's proxy and authorities; the caller closes it. @throws {CaissonError} `invalid_config` */
  async dispatcher(): Promise<Dispatcher> {
    return this.#settings.network(await this.#settings.config()).dispatcher()
  }

  /** @param isOffline demonstration results where no provider is configured. @throws {CaissonError} `invalid_config` */
  async search(isOffline: boolean): Promise<GoalSearch> {
    const config = await this.#settings.config()
    const network = this.#settings.network(config)
    return createSearch({
      config: config.search,
      isOffline,
      egress: { record: () => undefined },
      resolveKey: this.#settings.resolveKey,
      dispatcher: () => network.dispatcher(),
    })
  }

  /** The notes of proposals for one goal. */
  goalNotes(goal: string, author: string): GoalNotes {
    return new GoalNotes({ store: this.#notes, folders: this.#folders, goal, author })
  }
}

/** Characters of JSON per token, where nobody counted. */
const charsPerToken = 4

/** The model requests of one goal, one after another. */
export class GoalBudget {
  readonly #budget: Budget
  #open: { readonly reservation: Reservation; readonly inputTokens: number } | undefined

  constructor(budget: Budget) {
    this.#budget = budget
  }

  /** Before a request. @throws {CaissonError} `limit_reached` */
  async begin(messages: unknown, signal: AbortSignal): Promise<void> {
    const inputTokens = estimate(messages)
    const reserved = await this.#budget.reserve({ inputTokens, outputTokens: 1, signal })
    if (!reserved.ok) throw new CaissonError('limit_reached', reserved.error.message)
    this.#open = { reservation: reserved.value, inputTokens }
  }

  /** With its answer: by the count of the server, else by the length of both. */
  end(answer: unknown, counted: Pick<Usage, 'inputTokens' | 'outputTokens'> | undefined): void {
    if (this.#open === undefined) return
    const { reservation, inputTokens } = this.#open
    const used = counted ?? { inputTokens, outputTokens: estimate(answer) }
    reservation.settle({ ...used, requests: 1, reasoningTokens: 0 })
    this.#open = undefined
  }
}

function estimate(value: unknown): number {
  return Math.ceil(JSON.stringify(value).length / charsPerToken)
}

interface GoalNotesOptions {
  readonly store: NoteStore
  readonly folders: Folders
  readonly goal: string
  readonly author: string
}

/** Lists the notes of proposals, and keeps those whose words are the goal's own or that somebody allows. */
export class GoalNotes {
  readonly #options: GoalNotesOptions
  readonly #service: MemoryService

  /** @param options `author`: who the notes are of */
  constructor(options: GoalNotesOptions) {
    this.#options = options
    this.#service = new MemoryService({
      store: options.store,
      runId: options.author,
      workspace: '',
      note: () => undefined,
      redact: (text) => text,
    })
  }

  async list(proposalId: string): Promise<Result<readonly GovernanceNote[], WireError>> {
    const listed = await this.#service.listNotes({ proposalId })
    return listed.ok ? { ok: true, value: listed.value.notes.map((note) => note as GovernanceNote) } : listed
  }

  /**
   * @param allow asked about a note that the goal does not have word for word
   * @returns the note, and whether it is kept. @throws {CaissonError} `state_unavailable`, `limit_reached`
   */
  async add(
    { proposalId, text }: Pick<GovernanceNote, 'proposalId' | 'text'>,
    allow: () => Promise<boolean>,
  ): Promise<Result<{ readonly noteId: string; readonly isKept: boolean }, WireError>> {
    const added = await this.#service.addNote({ proposalId, text, agentPath: 'root' })
    if (!added.ok) return added
    const { noteId, author, at, state } = added.value.note
    if (state === 'kept') return { ok: true, value: { noteId, isKept: true } }
    const { store, folders, goal } = this.#options
    if (!isNoteIn(goal, { proposalId, text }) && !(await allow()))
      return { ok: true, value: { noteId, isKept: false } }
    const note = { kind: 'governance' as const, noteId, proposalId, text, author, at }
    await prepareFolders(folders)
    await store.change((notes) =>
      notes.some((known) => keyOf(known) === keyOf(note)) ? notes : [...notes, note],
    )
    return { ok: true, value: { noteId, isKept: true } }
  }
}
