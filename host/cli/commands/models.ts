/** `caisson models`: what the configured servers offer, and what is known of each model. */
import { CaissonError } from '#specs/errors.ts'
import { withoutOverridden } from '../../config/overrides.ts'
import { type OfferedModel, type OfferedModels, offeredModels } from '../../offered-models.ts'
import { Settings } from '../../settings.ts'
import { withEnvFile } from '../env-file.ts'
import { type ExitCode, exitCodes } from '../exit-codes.ts'
import { hostOf, type Io } from '../io.ts'
import { withFlags } from '../options.ts'
import { colorsFor } from '../render/colors.ts'
import { writeJsonLine } from '../render/json-lines.ts'
import { sanitizeLine } from '../render/sanitize.ts'

/** @param provider name of one. Absent: all */
export async function models(
  given: Io,
  provider: string | undefined,
  flags: { json?: boolean; config?: string[]; envFile?: string },
): Promise<ExitCode> {
  const io = await withEnvFile(given, flags.envFile)
  const { folders } = hostOf(io, flags.config)
  const place = { folders, env: withoutOverridden(io.env, flags.config ?? []) }
  const settings = new Settings(place, undefined, flags.config)
  const offer = await offeredModels(settings, place, provider)
  const { servers, providers } = offer
  if (provider !== undefined && servers.length === 0)
    throw new CaissonError(
      'invalid_options',
      `no provider is called "${provider}"; ${providers.length === 0 ? 'none is set: docs/real-model.md says how' : `use ${providers.join(', ')}`}`,
    )
  const colors = colorsFor(io.stdout)
  for (const { models: offered, problem, ...server } of servers) {
    if (flags.json === true) {
      for (const model of offered) await writeJsonLine(io.stdout, { provider: server.provider, ...model })
      if (problem !== undefined) await writeJsonLine(io.stdout, { provider: server.provider, problem })
      continue
    }
    const { provider: name, kind, baseUrl } = server
    const title = `${name}${kind === '' || kind === name ? '' : ` (${kind})`}`
    io.stdout.write(`${colors.bold(sanitizeLine(title))}  ${sanitizeLine(baseUrl ?? '')}\n`)
    if (problem !== undefined) io.stdout.write(`  ${colors.yellow(sanitizeLine(problem))}\n`)
    const width = Math.min(60, Math.max(0, ...offered.map(({ model }) => model.length)))
    if (problem === undefined && offered.length === 0) io.stdout.write('  It lists no model.\n')
    for (const model of offered) {
      const name = sanitizeLine(model.model, 200)
      const known = describe(model)
      const rest = known === '' ? '' : `${name.padEnd(width).slice(name.length)}  ${colors.dim(known)}`
      io.stdout.write(`${model.isDefault ? '*' : ' '} ${name}${rest}\n`)
    }
  }
  if (flags.json !== true) io.stdout.write(`${sanitizeLine(withFlags(describeDefault(offer)), 1_000)}\n`)
  const hasFailed = servers.length > 0 && servers.every(({ problem }) => problem !== undefined)
  return hasFailed ? exitCodes.environment : exitCodes.completed
}

/** Which model a run uses that names none, below the lists. */
function describeDefault({ servers, ofRuns }: OfferedModels): string {
  if (servers.length === 0) return 'No server is set; the offline model answers. See docs/real-model.md.'
  if ('problem' in ofRuns) return `A run that names no model cannot start: ${ofRuns.problem}`
  const { provider, model } = ofRuns
  if (provider === 'offline')
    return 'A run that names no model uses the offline model. Name one (option model), or set model or provider in the configuration.'
  if (servers.some(({ models: offered }) => offered.some(({ isDefault }) => isDefault)))
    return '* the model of a run that names none'
  if (model !== null) return `A run that names no model uses ${model} of ${provider}.`
  if (servers.every(({ provider: name, problem }) => name !== provider || problem !== undefined))
    return `A run that names no model uses one of ${provider}.`
  return `Of ${provider}, a run has to name its model (option model, CAISSON_MODEL, or model in the configuration).`
}

function describe({
  contextTokens,
  tools,
  parallelCalls,
  hasOwnEffort,
  maxImages,
  isGone,
  price,
  known,
}: OfferedModel): string {
  const facts = [
    ...(isGone ? ['not there for this key'] : []),
    ...(contextTokens === null ? [] : [`${contextTokens.toLocaleString('en')} tokens of context`]),
    ...(tools ? [] : ['no tools']),
    ...(parallelCalls ? [] : ['one call in a turn']),
    ...(maxImages > 0 ? ['sees images'] : []),
    ...(hasOwnEffort ? ['effort by a switch of its own'] : []),
    ...(price === null ? [] : [`$${price.input} in, $${price.output} out per million tokens`]),
  ]
  // A date alone says nothing.
  const date = known === null || facts.length === 0 ? [] : [`as of ${known.asOf}`]
  return [...facts, ...date].join(' · ')
}
