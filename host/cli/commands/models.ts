/** `caisson models`: what the configured servers offer, and what is known of each model. */
import { CaissonError } from '#specs/errors.ts'
import { withoutOverridden } from '../../config/overrides.ts'
import { type OfferedModel, offeredModels } from '../../offered-models.ts'
import { Settings } from '../../settings.ts'
import { type ExitCode, exitCodes } from '../exit-codes.ts'
import { hostOf, type Io } from '../io.ts'
import { colorsFor } from '../render/colors.ts'
import { writeJsonLine } from '../render/json-lines.ts'
import { sanitizeLine } from '../render/sanitize.ts'

/** @param provider name of one. Absent: all */
export async function models(
  io: Io,
  provider: string | undefined,
  flags: { json?: boolean; config?: string[] },
): Promise<ExitCode> {
  const { folders } = hostOf(io, flags.config)
  const place = { folders, env: withoutOverridden(io.env, flags.config ?? []) }
  const settings = new Settings(place, undefined, flags.config)
  const servers = await offeredModels(settings, place, provider)
  if (provider !== undefined && servers.length === 0)
    throw new CaissonError(
      'invalid_options',
      `no provider is called "${provider}"; list them: caisson config check`,
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
    for (const model of offered)
      io.stdout.write(
        `${model.isDefault ? '*' : ' '} ${sanitizeLine(model.model, 200).padEnd(width)}  ${colors.dim(describe(model))}\n`,
      )
  }
  if (servers.length === 0 && flags.json !== true)
    io.stdout.write('No server is set; the offline model answers. See docs/real-model.md.\n')
  else if (flags.json !== true) io.stdout.write('* used where nobody names a model\n')
  const hasFailed = servers.length > 0 && servers.every(({ problem }) => problem !== undefined)
  return hasFailed ? exitCodes.environment : exitCodes.completed
}

function describe({
  contextTokens,
  tools,
  parallelCalls,
  hasOwnEffort,
  isGone,
  price,
  known,
}: OfferedModel): string {
  return [
    ...(isGone ? ['not there for this key'] : []),
    ...(contextTokens === null ? [] : [`${contextTokens.toLocaleString('en')} tokens of context`]),
    ...(tools ? [] : ['no tools']),
    ...(parallelCalls ? [] : ['one call in a turn']),
    ...(hasOwnEffort ? ['effort by a switch of its own'] : []),
    ...(price === null ? [] : [`$${price.input} in, $${price.output} out`]),
    ...(known === null ? [] : [`as of ${known.asOf}`]),
  ].join(' · ')
}
