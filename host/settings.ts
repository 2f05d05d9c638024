/**
 * The user's settings as one host has them: its configuration and environment, read for each run, and what follows from
 * them (provider, keys, network). What cannot be used is thrown, for there is no run without it.
 */

import { CaissonError } from '#specs/errors.ts'
import type { Result } from '#specs/protocol/error.ts'
import { namedModels, type StepModels } from '#specs/protocol/run-models.ts'
import { loadConfig, parseConfig } from './config/load.ts'
import type { Config, ConfigInput } from './config/schema.ts'
import { describeMissingPrice, priceOf } from './gateway/budget.ts'
import { commandHook } from './hooks/command-hook.ts'
import type { Hook } from './hooks/hook.ts'
import type { KeySource } from './keys/key-source.ts'
import { storedKeys } from './keys/keyring.ts'
import { type KeyPlace, resolveKey } from './keys/keys.ts'
import type { Secret } from './keys/secret.ts'
import { type Network, openNetwork } from './net/network.ts'
import { findCommand } from './processes/programs.ts'
import { CapabilityCache } from './providers/capability-cache.ts'
import { type ListedModel, listModels, pickModel } from './providers/model-list.ts'
import {
  chooseEmbeddings,
  chooseProvider,
  fetchKey,
  type ModelProvider,
  type ProviderChoice,
  withModel,
} from './providers/providers.ts'
import { checkFolderIfThere, type Folders } from './state/folders.ts'

export class Settings {
  readonly #place: KeyPlace & { readonly folders: Pick<Folders, 'config' | 'locks'> }
  readonly #given: ConfigInput | undefined
  readonly #overrides: readonly string[]

  /**
   * @param given in the place of the file
   * @param overrides `KEY=VALUE`, over the file or `given`
   */
  constructor(
    place: KeyPlace & { readonly folders: Pick<Folders, 'config' | 'locks'> },
    given?: ConfigInput,
    overrides: readonly string[] = [],
  ) {
    this.#place = place
    this.#given = given
    this.#overrides = overrides
  }

  /** As it is now. @throws {CaissonError} `invalid_config` @throws {CaissonError} `state_unavailable` */
  async config(): Promise<Config> {
    // First, for it says most: of another user's home neither the state nor the configuration can be used.
    await checkFolderIfThere(this.#place.folders.home)
    const loaded =
      this.#given === undefined
        ? await loadConfig(this.#place.folders, this.#overrides)
        : parseConfig(this.#given, 'the configuration that the host was given', this.#overrides)
    if (loaded.ok) return loaded.value
    throw new CaissonError('invalid_config', loaded.error)
  }

  /**
   * Who is asked for a model. Where nobody names one, the server is asked for its list, with its key.
   * @throws {CaissonError} as {@link chooseServer}
   */
  async chooseProvider(config: Config, model?: string): Promise<ProviderChoice> {
    const choice = await this.chooseServer(config, model)
    return choice.preferred === undefined ? choice : await this.#chooseListed(choice, config)
  }

  /**
   * The same, but a model that nobody names stays open. Asks no server.
   * @param isAsked whether `model` is of the caller, and not of the configuration
   * @throws {CaissonError} `invalid_options` when no server has the caller's model; `provider_unavailable`
   */
  async chooseServer(config: Config, model?: string, isAsked = model !== undefined): Promise<ProviderChoice> {
    const chosen = chooseProvider({
      env: this.#place.env,
      config,
      storedKeys: await storedKeys(this.#place),
      ...(model === undefined ? {} : { model }),
    })
    if (chosen.ok) return chosen.value
    if (isAsked && (chosen.error.code === 'missing_model' || chosen.error.code === 'invalid_model'))
      throw new CaissonError('invalid_options', chosen.error.message)
    throw new CaissonError('provider_unavailable', chosen.error.message)
  }

  async #chooseListed(choice: ProviderChoice, config: Config): Promise<ProviderChoice> {
    const { name, baseUrl, preferred = [] } = choice
    const listed = await this.listModels(choice, config)
    const gone = await new CapabilityCache(this.#place.folders).gone(baseUrl ?? '')
    const picked = listed.ok ? pickModel(listed.value, preferred, gone) : null
    if (picked !== null)
      return { ...withModel(choice, picked.model, config), modelFrom: `${picked.why}; nobody named one` }
    if (!listed.ok && choice.model !== '') return withModel(choice, choice.model, config)
    const seen = listed.ok
      ? `${name} lists ${listed.value.length} models${describeSome(listed.value.map(({ id }) => id))}`
      : `the list of ${name} cannot be read: ${listed.error}`
    throw new CaissonError(
      'provider_unavailable',
      `No model is named, and ${seen}. Name one (option model, CAISSON_MODEL, or model in the configuration).`,
    )
  }

  /** The models of a server, by its own list. @throws {CaissonError} `provider_unavailable` without its key */
  async listModels(choice: ProviderChoice, config: Config): Promise<Result<readonly ListedModel[], string>> {
    const provider = await this.fetchKey(choice)
    const { baseUrl } = provider
    if (baseUrl === null) return { ok: true, value: [{ id: provider.model }] }
    return await listModels({ ...provider, baseUrl }, this.network(config))
  }

  /** @throws {CaissonError} `provider_unavailable` */
  async fetchKey(choice: ProviderChoice): Promise<ModelProvider> {
    const fetched = await fetchKey(choice, this.#place)
    if (fetched.ok) return fetched.value
    throw new CaissonError('provider_unavailable', fetched.error.message)
  }

  /**
   * Who makes vectors of texts, and what that costs; undefined where the configuration names no model.
   * @throws {CaissonError} `invalid_config` @throws {CaissonError} `provider_unavailable`
   */
  async chooseEmbeddings(
    config: Config,
    maxCostUsd: number | undefined,
  ): Promise<ProviderChoice | undefined> {
    if (config.embeddings === undefined) return undefined
    const { env } = this.#place
    const chosen = chooseEmbeddings(config, { env, storedKeys: await storedKeys(this.#place) })
    if (!chosen.ok) {
      const { kind, message } = chosen.error
      throw kind === 'setting'
        ? new CaissonError('invalid_config', message)
        : new CaissonError('provider_unavailable', message)
    }
    const choice = chosen.value
    const unpriced = choice && describeMissingPrice(maxCostUsd, priceOf(choice), choice.model)
    if (typeof unpriced === 'string')
      throw new CaissonError('price_unknown', `embeddings.model in the configuration: ${unpriced}`)
    return choice
  }

  /**
   * Who is asked where another model of the run cannot answer, with keys.
   * @param given models of the run's options, in place of those of the configuration
   * @throws {CaissonError} `provider_unavailable` @throws {CaissonError} `price_unknown`
   */
  async fallbacks(
    config: Config,
    own: ProviderChoice,
    maxCostUsd: number | undefined,
    given?: readonly string[],
  ): Promise<ModelProvider[]> {
    if (own.baseUrl === null) return []
    const where = given === undefined ? 'fallback in the configuration: ' : ''
    return await Promise.all(
      (given ?? config.fallback).map((model) => this.#further(config, model, maxCostUsd, where)),
    )
  }

  /**
   * What steps and sub-agents may use, by name, with keys.
   * @param given models of the run's options, in place of those of the configuration
   * @throws {CaissonError} `provider_unavailable` @throws {CaissonError} `price_unknown`
   */
  async stepModels(
    config: Config,
    maxCostUsd: number | undefined,
    given?: StepModels,
  ): Promise<Map<string, ModelProvider>> {
    const where = given === undefined ? 'stepModels in the configuration: ' : ''
    const named = [...namedModels(given ?? config.stepModels ?? [])]
    return new Map(
      await Promise.all(
        named.map(
          async ([name, model]) => [name, await this.#further(config, model, maxCostUsd, where)] as const,
        ),
      ),
    )
  }

  /** A model besides the run's own. @param where it is named, for errors */
  async #further(
    config: Config,
    model: string,
    maxCostUsd: number | undefined,
    where: string,
  ): Promise<ModelProvider> {
    const choice = await this.chooseServer(config, model, where === '')
    const unpriced = describeMissingPrice(maxCostUsd, priceOf(choice), choice.model)
    if (unpriced !== null) throw new CaissonError('price_unknown', `${where}${unpriced}`)
    return await this.fetchKey(choice)
  }

  /** Fetches the key of a secret or a service, each time it is asked. */
  readonly resolveKey = (source: KeySource): Promise<Result<Secret, string>> =>
    resolveKey(source, this.#place)

  /** The hooks of the configuration; each command is there. @throws {CaissonError} `invalid_config` */
  async hooks({ hooks }: Config): Promise<Hook[]> {
    const { env } = this.#place
    for (const { command, point } of hooks) {
      const [program = ''] = command
      const found = await findCommand(program, env)
      if (!found.ok) throw new CaissonError('invalid_config', `the ${point} hook "${program}" ${found.error}`)
    }
    return hooks.map((hook) => commandHook(hook, env))
  }

  /** How this host reaches the internet. @throws {CaissonError} `invalid_config` */
  network({ network }: Config): Network {
    const opened = openNetwork(network, this.#place.env)
    if (opened.ok) return opened.value
    throw new CaissonError('invalid_config', opened.error)
  }
}

/** `: a, b, c, …`; nothing for none. */
function describeSome(ids: readonly string[]): string {
  const [first, ...more] = ids.slice(0, 5)
  if (first === undefined) return ''
  return `: ${[first, ...more, ...(ids.length > 5 ? ['…'] : [])].join(', ')}`
}
