/** `caisson vm templates`: the saved VMs that others begin from, and what could not be made; removes them on request. */

import { CaissonError } from '#specs/errors.ts'
import { formatAge, formatBytes, formatCount, formatDuration, formatTable } from '../../files/format.ts'
import { describeReasons, type TemplateFailure } from '../../vm/template/template-failures.ts'
import { type TemplateInfo, TemplateStore, toVmTemplate } from '../../vm/template/template-store.ts'
import { type ExitCode, exitCodes } from '../exit-codes.ts'
import { hostOf, type Io } from '../io.ts'
import { writeJsonLine } from '../render/json-lines.ts'
import { sanitizeLine } from '../render/sanitize.ts'

interface TemplateFlags {
  readonly prune?: boolean
  readonly all?: boolean
  readonly json?: boolean
}

export async function vmTemplates(io: Io, flags: TemplateFlags): Promise<ExitCode> {
  if (flags.all === true && flags.prune !== true)
    throw new CaissonError('invalid_options', '--all requires --prune')
  const store = new TemplateStore(hostOf(io).folders.cache)
  const removed = flags.prune === true ? await store.prune(flags.all === true) : []
  const [templates, failures] = [await store.list(), await store.failures()]
  if (flags.json === true) {
    await writeJsonLine(io.stdout, {
      templates: templates.map(toVmTemplate),
      failures,
      removed: removed.map(({ name, bytes }) => ({ name, bytes })),
    })
    return exitCodes.completed
  }
  if (flags.prune === true) io.stdout.write(`${removedLine(removed, templates.length)}\n`)
  io.stdout.write(templates.length === 0 ? 'no templates; the next run creates one\n' : tableOf(templates))
  for (const failure of failures) io.stdout.write(`${failureLine(failure)}\n`)
  return exitCodes.completed
}

function removedLine(removed: readonly TemplateInfo[], left: number): string {
  if (removed.length === 0)
    return left === 0
      ? 'There was nothing to remove.'
      : 'No template is old enough to remove; to remove all of them, add --all.'
  const bytes = removed.reduce((sum, info) => sum + info.bytes, 0)
  return `Removed ${formatCount(removed.length, 'template')}, ${formatBytes(bytes)}.`
}

function tableOf(templates: readonly TemplateInfo[]): string {
  const rows = templates.map(({ name, bytes, usedAtMs, record, problem }) => [
    name.slice(0, 12),
    record === undefined ? '' : formatBytes(record.memoryBytes),
    record === undefined ? '' : startWords[record.kind],
    formatBytes(bytes),
    record === undefined ? '' : `${ageOf(record.createdAtMs)}, in ${formatDuration(record.tookMs)}`,
    usedAtMs === 0 ? '' : ageOf(usedAtMs),
    record === undefined ? '' : sanitizeLine(record.qemuVersion, 20),
    problem === undefined ? 'intact' : `rebuilt at next use: ${sanitizeLine(problem, 200)}`,
  ])
  return formatTable(['TEMPLATE', 'MEMORY', 'STARTS', 'ON DISK', 'MADE', 'USED', 'QEMU', 'STATE'], rows)
}

const startWords = { mapped: 'mapped', plain: 'loaded' } as const

function failureLine({ name, atMs, untilMs, reasons }: TemplateFailure): string {
  const which = Object.keys(reasons).length > 1 ? 'booted' : 'loaded whole'
  const why = sanitizeLine(describeReasons(reasons), 500)
  const again = `tried again in ${formatDuration(Math.max(0, untilMs - Date.now()))}`
  return `${name.slice(0, 12)}  ${which} since it failed (${ageOf(atMs)}), ${again}: ${why}`
}

function ageOf(atMs: number): string {
  return formatAge(Math.max(0, Date.now() - atMs))
}
