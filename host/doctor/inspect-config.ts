/**
 * Checks a configuration on this machine, for `caisson config check` and `caisson doctor`: the server of each model, sources of
 * keys, rules, proxies, MCP servers. Fetches no key, runs nothing and asks no server.
 */

import { existsSync } from 'node:fs'
import type { McpServer } from '#specs/protocol/extension.ts'
import { describeMcpServer } from '#specs/protocol/mcp-config.ts'
import { namedModels } from '#specs/protocol/run-models.ts'
import { configFile, loadConfig } from '../config/load.ts'
import type { Config } from '../config/schema.ts'
import { decide, makePolicy } from '../egress/policy.ts'
import { formatCount } from '../files/format.ts'
import { nameOfHook } from '../hooks/command-hook.ts'
import type { KeySource } from '../keys/key-source.ts'
import { storedKeys } from '../keys/keyring.ts'
import { describeSource, inspectKey, type KeyPlace } from '../keys/keys.ts'
import { mcpServersOf } from '../mcp/config.ts'
import { openNetwork } from '../net/network.ts'
import { parseTarget } from '../net/target.ts'
import { findCommand } from '../processes/programs.ts'
import {
  chooseAsDefault,
  chooseEmbeddings,
  chooseProvider,
  type ProviderChoice,
} from '../providers/providers.ts'
import { findPlaceholders } from '../secrets/placeholders.ts'
import { skillRoots, UserSkills } from '../skills/user-skills.ts'
import type { Folders } from '../state/folders.ts'

/** What the doctor says of one thing that it checked. */
export interface Finding {
  /** Stable name, such as `accelerator`. */
  readonly id: string
  readonly title: string
  /** `warn`: works with a restriction; `fail`: no VM can start. */
  readonly status: 'ok' | 'warn' | 'fail'
  /** Whether nothing protects the user from a hostile guest; absent: no. */
  readonly isUnsafe?: boolean
  /** What was found. */
  readonly seen: string
  /** What to do; absent when nothing need be done. */
  readonly remedy?: string
}

/** What is known of one section of a configuration. */
interface ConfigFact {
  /** The section, such as `providers.local`. */
  readonly what: string
  readonly seen: string
  /** What a person should know, though nothing is wrong. */
  readonly note?: string
  /** What is wrong and what to do; absent: nothing. */
  readonly problem?: string
  /** Whether every run that asks for nothing else fails because of it. */
  readonly stopsRuns?: true
}

/** One fact for each section that says something; of the model see {@link inspectModel}. */
export async function inspectSections(
  config: Config,
  place: KeyPlace & { readonly folders: { readonly config: string } },
): Promise<ConfigFact[]> {
  return [
    ...(await Promise.all(Object.keys(config.providers).map((name) => inspectProvider(name, config, place)))),
    ...(await inspectFurther(config, place)),
    ...inspectModels(config),
    ...(await inspectEmbeddings(config, place)),
    ...(await inspectKeys(config, place)),
    ...(await inspectHooks(config, place)),
    ...inspectMcpServers(config),
    ...(await inspectSkills(config, place)),
    ...(config.memory.enabled ? [] : [{ what: 'memory', seen: 'switched off' }]),
    inspectNetwork(config, place),
    inspectEgress(config),
  ]
}

/** The provider and model of a run that names none; a problem of it stops such runs. */
export async function inspectModel(config: Config, place: KeyPlace): Promise<ConfigFact> {
  const chosen = chooseProvider({ env: place.env, config, storedKeys: await storedKeys(place) })
  if (!chosen.ok)
    return { what: 'model', seen: 'none can be used', problem: chosen.error.message, stopsRuns: true }
  const { name, baseUrl, notes } = chosen.value
  const seen =
    baseUrl === null
      ? `${describeModelChoice(chosen.value)}, built in`
      : chosen.value.preferred === undefined
        ? `${describeModelChoice(chosen.value)} of ${name} at ${baseUrl}`
        : `chosen from the list of ${name} at ${baseUrl}, as caisson models shows`
  const note = notes.join(' ')
  const fact = await withKey({ what: 'model', seen, ...(note === '' ? {} : { note }) }, chosen.value, place)
  return fact.problem === undefined ? fact : { ...fact, stopsRuns: true }
}

/** What a run may use besides its model: where that cannot answer, and for steps. */
async function inspectFurther(config: Config, place: KeyPlace): Promise<ConfigFact[]> {
  const keys = await storedKeys(place)
  const inspect = async ([what, model]: readonly [string, string]): Promise<ConfigFact> => {
    const chosen = chooseProvider({ env: place.env, config, storedKeys: keys, model })
    if (!chosen.ok) return { what, seen: 'cannot be used', problem: chosen.error.message, stopsRuns: true }
    const { name, baseUrl } = chosen.value
    const seen = `${chosen.value.model} of ${name}${baseUrl === null ? ', built in' : ` at ${baseUrl}`}`
    const fact = await withKey({ what, seen }, chosen.value, place)
    return fact.problem === undefined ? fact : { ...fact, stopsRuns: true }
  }
  const ofSteps = [...namedModels(config.stepModels ?? [])]
  return await Promise.all([
    ...config.fallback.map((model) => inspect(['fallback', model])),
    ...ofSteps.map(([name, model]) => inspect([`stepModels.${name}`, model])),
  ])
}

/** Which model, and why. */
function describeModelChoice({ model, modelFrom }: ProviderChoice): string {
  return modelFrom === undefined ? model : `${model} (${modelFrom})`
}

async function inspectProvider(name: string, config: Config, place: KeyPlace): Promise<ConfigFact> {
  const what = `providers.${name}`
  const { models = [] } = config.providers[name] ?? {}
  // The model is of no account here.
  const chosen = chooseAsDefault(name, {
    ...{ env: place.env, config, model: 'any' },
    storedKeys: await storedKeys(place),
  })
  if (!chosen.ok) return { what, seen: 'cannot be used', problem: chosen.error.message }
  const asked = models.length === 0 ? 'when it is the default' : `for ${models.join(', ')}`
  return await withKey({ what, seen: `${chosen.value.baseUrl}, ${asked}` }, chosen.value, place)
}

async function inspectEmbeddings(config: Config, place: KeyPlace): Promise<ConfigFact[]> {
  if (config.embeddings === undefined) return []
  const what = 'embeddings'
  const chosen = chooseEmbeddings(config, { env: place.env, storedKeys: await storedKeys(place) })
  if (!chosen.ok) return [{ what, seen: 'none can be used', problem: chosen.error.message, stopsRuns: true }]
  if (chosen.value === undefined) return []
  const { model, name, baseUrl } = chosen.value
  return [await withKey({ what, seen: `${model} of ${name} at ${baseUrl}` }, chosen.value, place)]
}

function inspectModels({ models }: Config): ConfigFact[] {
  return Object.entries(models).map(([pattern, { contextTokens, maxImages }]) => {
    const facts = [
      ...(contextTokens === undefined ? [] : [`a window of ${contextTokens} tokens`]),
      ...(maxImages === undefined ? [] : [`sees ${maxImages} images of a request`]),
    ]
    return { what: `models.${pattern}`, seen: facts.join(', ') || 'nothing is said of it' }
  })
}

async function inspectKeys({ secrets, search, notify }: Config, place: KeyPlace): Promise<ConfigFact[]> {
  const facts = Object.entries(secrets).map(([name, { from, hosts }]) =>
    withSource({ what: `secrets.${name}`, seen: `for ${hosts.join(', ')}` }, from, place),
  )
  for (const [name, { url, secret }] of Object.entries(notify.webhooks)) {
    // The path of a webhook is often its key.
    const seen = `at ${new URL(url).host}`
    facts.push(withSource({ what: `notify.webhooks.${name}`, seen }, secret, place))
  }
  if (search === undefined) return await Promise.all(facts)
  const found = { what: 'search', seen: search.provider }
  facts.push('key' in search ? withSource(found, search.key, place) : Promise.resolve(found))
  return await Promise.all(facts)
}

async function inspectHooks({ hooks }: Config, { env }: KeyPlace): Promise<ConfigFact[]> {
  const facts = hooks.map(async (hook, index): Promise<ConfigFact> => {
    const { point, tools = [], command } = hook
    const about = tools.length === 0 ? '' : ` of ${tools.join(', ')}`
    const fact = { what: `hooks.${index}`, seen: `${point}${about}: ${nameOfHook(hook)}` }
    const [program = ''] = command
    const found = await findCommand(program, env)
    if (found.ok) return { ...fact, seen: `${fact.seen} (${found.value})` }
    return { ...fact, problem: `the command "${program}" ${found.error}`, stopsRuns: true }
  })
  return await Promise.all(facts)
}

async function inspectSkills(
  config: Config,
  { folders, env }: KeyPlace & { readonly folders: { readonly config: string } },
): Promise<ConfigFact[]> {
  const roots = skillRoots(config, folders, env)
  const skills = await UserSkills.read(roots)
  const { length } = skills.list()
  const isNamed = config.skills.roots !== undefined
  const missing = isNamed ? skills.missing : []
  const problems = [...skills.problems, ...missing.map((path) => ({ path, problem: 'is not there' }))]
  const [first] = problems
  if (!isNamed && length === 0 && first === undefined) return []
  const fact = { what: 'skills', seen: `${length} below ${roots.join(', ') || 'no root'}` }
  if (first === undefined) return [fact]
  const more = problems.length === 1 ? '' : `; ${problems.length - 1} more: caisson skills list`
  return [{ ...fact, problem: `${first.path} ${first.problem}${more}` }]
}

async function withKey(
  fact: ConfigFact,
  { keySource }: ProviderChoice,
  place: KeyPlace,
): Promise<ConfigFact> {
  return keySource === null ? fact : await withSource(fact, keySource, place)
}

async function withSource(fact: ConfigFact, source: KeySource, place: KeyPlace): Promise<ConfigFact> {
  const seen = `${fact.seen}, key from ${describeSource(source)}`
  const inspected = await inspectKey(source, place)
  return inspected.ok ? { ...fact, seen } : { ...fact, seen, problem: inspected.error }
}

function inspectNetwork({ network }: Config, { env }: KeyPlace): ConfigFact {
  const opened = openNetwork(network, env)
  const what = 'network'
  if (!opened.ok) return { what, seen: 'cannot be used', problem: opened.error, stopsRuns: true }
  const proxy = opened.value.proxyFor({ scheme: 'https', host: 'example.com', port: 443 })
  const ca = network.ca === undefined ? '' : `, also trusting ${network.ca}`
  return { what, seen: `${proxy === null ? 'direct' : `through ${proxy.shown}`}${ca}` }
}

function inspectEgress({ egress }: Config): ConfigFact {
  const made = makePolicy({ configuration: egress.rules, otherwise: egress.default })
  if (!made.ok) return { what: 'egress', seen: 'cannot be used', problem: made.error, stopsRuns: true }
  const otherwise = egress.default === 'ask' ? 'asked' : 'denied'
  return {
    what: 'egress',
    seen: `${formatCount(egress.rules.length, 'rule')}; an access that no rule matches is ${otherwise}`,
  }
}

export function inspectMcpServers(config: Config): ConfigFact[] {
  return Object.entries(config.mcpServers).map(([name, form]) => {
    const what = `mcpServers.${name}`
    const read = mcpServersOf({ [name]: form })
    if (!read.ok) return { what, seen: 'cannot be used', problem: read.error }
    const server = read.value[name]
    return server === undefined ? { what, seen: 'switched off' } : inspectServer(what, server, config)
  })
}

function inspectServer(what: string, server: McpServer, config: Config): ConfigFact {
  const { url, headers = {}, transport } = server
  const seen = `${describeMcpServer(server)}, ${url === undefined ? 'in the VM' : `by ${transport}`}`
  const missing = Object.values(headers)
    .flatMap(findPlaceholders)
    .find((name) => !Object.hasOwn(config.secrets, name))
  if (missing !== undefined)
    return {
      what,
      seen,
      problem: `there is no secret ${missing}; add [secrets.${missing}] with its source and hosts`,
    }
  const denied = url === undefined ? null : findDenial(url, config)
  return denied === null ? { what, seen } : { what, seen, note: denied }
}

/** A run may have rules of its own, so that this is no fault yet. */
function findDenial(url: string, { egress }: Config): string | null {
  const made = makePolicy({ configuration: egress.rules, otherwise: egress.default })
  const target = parseTarget(url, 'POST')
  if (!made.ok || !target.ok) return target.ok ? null : target.error
  const { effect, rule } = decide(made.value, target.value)
  if (effect === 'allow') return null
  const { host } = target.value
  return `its address ${effect === 'ask' ? 'requires approval' : 'is denied'} (${rule}); to allow it, add { effect = "allow", host = "${host}" } to egress.rules`
}

const configuration = { id: 'configuration', title: 'Configuration' }
const key = { id: 'key', title: 'Model' }
const fixAndCheck = 'Fix the reported problem, then run caisson config check again.'

/** The findings `configuration` and `key`. */
export async function checkConfig(place: KeyPlace & { readonly folders: Folders }): Promise<Finding[]> {
  const file = configFile(place.folders)
  const loaded = await loadConfig(place.folders)
  if (!loaded.ok) {
    const remedy = 'Correct the file, then run caisson config check again.'
    return [
      { ...configuration, status: 'fail', seen: loaded.error, remedy },
      { ...key, status: 'warn', seen: 'unknown until the configuration can be read', remedy },
    ]
  }
  const facts = await inspectSections(loaded.value, place)
  const seen = existsSync(file) ? file : `${file} does not exist; the defaults apply`
  return [describeSections(seen, facts), describeModel(await inspectModel(loaded.value, place))]
}

/** @param where the file, and whether it exists */
function describeSections(where: string, facts: readonly ConfigFact[]): Finding {
  const wrong = facts.filter(({ problem }) => problem !== undefined)
  if (wrong.length === 0) return { ...configuration, status: 'ok', seen: where }
  const seen = [where, ...wrong.map(({ what, problem }) => `${what}: ${problem}`)].join('\n')
  return {
    ...configuration,
    status: wrong.some(({ stopsRuns }) => stopsRuns) ? 'fail' : 'warn',
    seen,
    remedy: fixAndCheck,
  }
}

function describeModel({ seen, note, problem }: ConfigFact): Finding {
  if (problem !== undefined)
    return { ...key, status: 'warn', seen: `${seen}: ${problem}`, remedy: fixAndCheck }
  return note === undefined ? { ...key, status: 'ok', seen } : { ...key, status: 'warn', seen, remedy: note }
}
