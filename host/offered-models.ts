/** What the servers of the configuration and the environment offer, with what is known of each model. */
import { errorMessage } from '#specs/errors.ts'
import { serverKindNames } from '#specs/node/model-protocols/server-kinds.ts'
import { capabilitiesOf } from '#specs/node/provider-quirks/capabilities.ts'
import { familyOf, type ModelCapabilities } from '#specs/node/provider-quirks/model-families.ts'
import type { PriceConfig } from './config/schema.ts'
import { storedKeys } from './keys/keyring.ts'
import type { KeyPlace } from './keys/keys.ts'
import { CapabilityCache } from './providers/capability-cache.ts'
import { isReachable, namedKinds } from './providers/kinds.ts'
import { contextTokensOf, maxImagesOf } from './providers/model-choice.ts'
import { type ListedModel, pickModel } from './providers/model-list.ts'
import { chooseAsDefault, chooseProvider, withModel } from './providers/providers.ts'
import type { Settings } from './settings.ts'
import type { Folders } from './state/folders.ts'

export interface OfferedModel extends Pick<ModelCapabilities, 'tools' | 'parallelCalls' | 'contextTokens'> {
  readonly model: string
  /** What a run that names no model uses; at most one of all servers. */
  readonly isDefault: boolean
  /** Whether an effort is sent in the model's own form; false: as `reasoning_effort`. */
  readonly hasOwnEffort: boolean
  /** Images of a request that it sees; 0 for none, and where nobody knows. */
  readonly maxImages: number
  /** Whether the server said that it is not there for this key. */
  readonly isGone: boolean
  /** US dollars for a million tokens; null if unknown. */
  readonly price: PriceConfig | null
  /** Source and month of what is known; null for a model of no known family. */
  readonly known: { readonly source: string; readonly asOf: string } | null
}

export interface OfferedServer {
  readonly provider: string
  readonly kind: string
  readonly baseUrl: string | null
  readonly models: readonly OfferedModel[]
  /** Why it lists nothing; absent: it does. */
  readonly problem?: string
}

/** Of a run that names no model: the server, and the model where somebody set one. `problem`: there is no such run. */
export type DefaultOfRuns =
  | { readonly provider: string; readonly model: string | null }
  | { readonly problem: string }

export interface OfferedModels {
  readonly servers: readonly OfferedServer[]
  /** Names of all servers that can be asked. */
  readonly providers: readonly string[]
  readonly ofRuns: DefaultOfRuns
}

/**
 * Asks each server for its list, with its key.
 * @param only name of one provider. Absent: all
 * @throws {CaissonError} `invalid_config`
 */
export async function offeredModels(
  settings: Settings,
  place: KeyPlace & { readonly folders: Pick<Folders, 'locks'> },
  only?: string,
): Promise<OfferedModels> {
  const config = await settings.config()
  const keys = await storedKeys(place)
  const { env } = place
  const names = new Set([
    ...(env.CAISSON_LLM_URL?.trim() ? ['custom'] : []),
    ...Object.keys(config.providers),
    ...serverKindNames.filter((kind) => keys.includes(kind)),
    ...(env.NVIDIA_API_KEY?.trim() ? ['nvidia'] : []),
    ...namedKinds.filter((kind) => isReachable(kind, env)),
  ])
  const own = chooseProvider({ env, config, storedKeys: keys })
  const wanted = [...names].filter((name) => only === undefined || name === only)
  const servers = await Promise.all(wanted.map(ask))
  const isUnread = servers.some(
    ({ provider, problem }) => own.ok && provider === own.value.name && problem !== undefined,
  )
  return { servers, providers: [...names], ofRuns: defaultOf(isUnread) }

  /** @param isUnread the list of its server; some servers have a model for that case */
  function defaultOf(isUnread: boolean): DefaultOfRuns {
    if (!own.ok) return { problem: own.error.message }
    const { name: provider, model, preferred } = own.value
    const isKnown = preferred === undefined || (isUnread && model !== '')
    return { provider, model: isKnown ? model : null }
  }

  async function ask(provider: string): Promise<OfferedServer> {
    const question = { env, config, storedKeys: keys }
    const chosen = provider === 'custom' ? chooseProvider(question) : chooseAsDefault(provider, question)
    if (!chosen.ok) return { provider, kind: '', baseUrl: null, models: [], problem: chosen.error.message }
    const choice = chosen.value
    const { kind = 'openai-compatible', baseUrl } = choice
    const about = { provider, kind, baseUrl }
    try {
      const listed = await settings.listModels(choice, config)
      if (!listed.ok) return { ...about, models: [], problem: listed.error }
      const gone = await new CapabilityCache(place.folders).gone(baseUrl ?? '')
      const picked = modelOfRuns(provider, listed.value, gone)
      const models = listed.value.map(({ id: model, contextTokens }) => {
        const known = familyOf(model)
        const { tools, parallelCalls, reasoning, contextTokens: ofTable, maxImages } = capabilitiesOf(model)
        return {
          model,
          isDefault: model === picked,
          isGone: gone.includes(model),
          contextTokens: contextTokensOf(config, model) ?? contextTokens ?? ofTable,
          ...{ tools, parallelCalls },
          maxImages: maxImagesOf(config, model) ?? maxImages,
          hasOwnEffort: reasoning !== 'effort',
          price: withModel(choice, model, config).price ?? null,
          known: known === undefined ? null : { source: known.source, asOf: known.asOf },
        }
      })
      return { ...about, models }
    } catch (error) {
      return { ...about, models: [], problem: errorMessage(error) }
    }
  }

  /** Null: a run that names no model is not of this server, or cannot start. */
  function modelOfRuns(
    provider: string,
    listed: readonly ListedModel[],
    gone: readonly string[],
  ): string | null {
    if (!own.ok || own.value.name !== provider) return null
    const { model, preferred } = own.value
    return preferred === undefined ? model : (pickModel(listed, preferred, gone)?.model ?? null)
  }
}
