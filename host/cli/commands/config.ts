/** `caisson config`: where the user's configuration is, whether it fits, and what it comes to. */
import { access } from 'node:fs/promises'
import { configFile } from '../../config/load.ts'
import { withoutOverridden } from '../../config/overrides.ts'
import { inspectModel, inspectSections } from '../../doctor/inspect-config.ts'
import { withEnvFile } from '../env-file.ts'
import { type ExitCode, exitCodes } from '../exit-codes.ts'
import { hostOf, type Io } from '../io.ts'
import { withFlags } from '../options.ts'
import { colorsFor } from '../render/colors.ts'
import { writeJsonLine } from '../render/json-lines.ts'
import { sanitizeLine } from '../render/sanitize.ts'

export async function configPath(io: Io): Promise<ExitCode> {
  io.stdout.write(`${sanitizeLine(configFile(hostOf(io).folders))}\n`)
  return exitCodes.completed
}

/** A file that does not fit is an error like in every command. What keeps runs from starting ends with 4, a warning with 0. */
export async function configCheck(
  given: Io,
  flags: { json?: boolean; config?: string[]; envFile?: string },
): Promise<ExitCode> {
  const io = await withEnvFile(given, flags.envFile)
  const host = hostOf(io, flags.config)
  const file = configFile(host.folders)
  const config = await host.config()
  const place = { folders: host.folders, env: withoutOverridden(io.env, flags.config ?? []) }
  const facts = [await inspectModel(config, place), ...(await inspectSections(config, place))]
  const exists = await access(file).then(
    () => true,
    () => false,
  )
  const canRun = facts.every(({ problem, stopsRuns }) => problem === undefined || stopsRuns !== true)
  if (flags.json === true) await writeJsonLine(io.stdout, { ok: canRun, file, exists, facts })
  else {
    const colors = colorsFor(io.stdout)
    io.stdout.write(`${sanitizeLine(file)}: ${exists ? 'valid' : 'does not exist; the defaults apply'}\n`)
    for (const { what, seen, note, problem, stopsRuns } of facts) {
      const wrong = stopsRuns === true ? colors.red('fail') : colors.yellow('warn')
      const mark = problem === undefined ? colors.green('ok  ') : wrong
      io.stdout.write(`${mark} ${sanitizeLine(what).padEnd(20)} ${sanitizeLine(seen)}\n`)
      if (note !== undefined) io.stdout.write(`       ${sanitizeLine(withFlags(note))}\n`)
      if (problem !== undefined) io.stdout.write(`       → ${sanitizeLine(withFlags(problem))}\n`)
    }
  }
  return canRun ? exitCodes.completed : exitCodes.environment
}
