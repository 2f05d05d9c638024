/** `caisson skills`: the user's own skills. Those of a workspace are read in the VM, and shown by no command. */

import { type ExitCode, exitCodes } from '../exit-codes.ts'
import { hostOf, type Io } from '../io.ts'
import { colorsFor } from '../render/colors.ts'
import { writeLines } from '../render/fit.ts'
import { writeJsonLine } from '../render/json-lines.ts'
import { sanitizeLine } from '../render/sanitize.ts'

export async function skillsList(io: Io, flags: { json?: boolean }): Promise<ExitCode> {
  const skills = await hostOf(io).skills()
  const { roots, problems, missing } = skills
  if (flags.json === true) {
    for (const root of roots) await writeJsonLine(io.stdout, { root })
    for (const { skillId, description, folder, root } of skills.list())
      await writeJsonLine(io.stdout, { skillId, description, folder, root })
    for (const { path, problem } of problems) await writeJsonLine(io.stdout, { path, problem })
    return exitCodes.completed
  }
  const colors = colorsFor(io.stdout)
  const lines = skills
    .list()
    .flatMap(({ skillId, description, folder }) => [
      `${colors.bold(skillId)}  ${sanitizeLine(description, 120)}`,
      colors.dim(`  ${sanitizeLine(folder)}`),
    ])
  if (lines.length === 0) lines.push('no skills')
  const shown = (root: string) => sanitizeLine(root) + (missing.includes(root) ? ' (does not exist)' : '')
  lines.push(`Folders searched, in increasing precedence: ${roots.map(shown).join(', ') || 'none'}`)
  lines.push(
    ...problems.map(({ path, problem }) => colors.yellow(`${sanitizeLine(path)}: ${sanitizeLine(problem)}`)),
  )
  writeLines(io.stdout, lines)
  return exitCodes.completed
}
