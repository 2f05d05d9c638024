/** `caisson doctor`: what was found on this machine, each with ok or the remedy. */

import type { Finding } from '../../doctor/doctor.ts'
import { withEnvFile } from '../env-file.ts'
import { type ExitCode, exitCodes } from '../exit-codes.ts'
import { hostOf, type Io } from '../io.ts'
import { withFlags } from '../options.ts'
import { type Colors, colorsFor } from '../render/colors.ts'
import { writeJsonLine } from '../render/json-lines.ts'
import { sanitizeBlock, sanitizeLine } from '../render/sanitize.ts'

export async function doctor(given: Io, flags: { json?: boolean; envFile?: string }): Promise<ExitCode> {
  const io = await withEnvFile(given, flags.envFile)
  const findings = await hostOf(io).doctor({ fresh: true })
  const colors = colorsFor(io.stdout)
  for (const finding of findings) {
    if (flags.json !== true) for (const line of linesOf(finding, colors)) io.stdout.write(`${line}\n`)
  }
  const failed = findings.some(({ status }) => status === 'fail')
  if (flags.json === true) await writeJsonLine(io.stdout, { ok: !failed, findings })
  else
    io.stdout.write(
      failed
        ? '\nNo VM can start on this machine until this is fixed.\n'
        : '\nVMs can start on this machine.\n',
    )
  return failed ? exitCodes.environment : exitCodes.completed
}

function linesOf({ title, status, isUnsafe, seen, remedy }: Finding, colors: Colors): string[] {
  const mark = { ok: colors.green('ok  '), warn: colors.yellow('warn'), fail: colors.red('FAIL') }[status]
  const [first = '', ...rest] = seen.split('\n')
  const text = sanitizeLine(first)
  const head = `${mark} ${title.padEnd(26)} ${isUnsafe === true ? colors.red(text) : text}`
  const more = rest.length === 0 ? [] : [sanitizeBlock(rest.join('\n'), '       │ ', 20)]
  return remedy === undefined
    ? [head, ...more]
    : [head, ...more, `       → ${sanitizeLine(withFlags(remedy))}`]
}
