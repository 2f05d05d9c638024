// What doctor says of templates: how VMs begin here, or why they are booted.

import { formatBytes, formatCount } from '../files/format.ts'
import { describeReasons, type TemplateFailure } from '../vm/template/template-failures.ts'
import { TEMPLATE_DISK_BYTES, type TemplateInfo, TemplateStore } from '../vm/template/template-store.ts'
import { readFreeBytes } from '../vm/vm-options.ts'
import type { Finding } from './finding.ts'

const heading = { id: 'template', title: 'Start of VMs' }
const AGAIN = 'To retry, run caisson vm templates --prune --all; the next run creates a template.'

/** @param cache the cache folder; it need not exist */
export async function checkTemplates(cache: string): Promise<Finding> {
  const store = new TemplateStore(cache)
  const [templates, [failure]] = [await store.list(), await store.failures()]
  const intact = templates.filter(({ record }) => record !== undefined)
  // What failed before a VM last began from a template was of another kind or of an earlier image.
  const lastUse = Math.max(0, ...intact.map(({ usedAtMs }) => usedAtMs))
  if (failure !== undefined && failure.atMs >= lastUse) return describeFailure(failure)
  if (intact.length > 0) return describeTemplates(intact, templates.length - intact.length)
  const free = await readFreeBytes(cache).catch(() => 0)
  if (free >= TEMPLATE_DISK_BYTES)
    return { ...heading, status: 'ok', seen: 'no template yet; the next run creates it' }
  return {
    ...heading,
    status: 'warn',
    seen: `booted: a template needs ${formatBytes(TEMPLATE_DISK_BYTES)}, and there are ${formatBytes(free)} at ${cache}`,
    remedy: 'Free disk space (caisson clean), or set CAISSON_CACHE to a larger disk.',
  }
}

function describeFailure({ name, reasons }: TemplateFailure): Finding {
  const which = `VMs of the kind ${name.slice(0, 12)}`
  const seen =
    reasons.plain === undefined
      ? `${which} load the full memory of a template, because it cannot be mapped: ${reasons.mapped}`
      : `${which} are booted: ${describeReasons(reasons)}`
  return { ...heading, status: 'warn', seen, remedy: `Fix the reported problem. ${AGAIN}` }
}

function describeTemplates(intact: readonly TemplateInfo[], damaged: number): Finding {
  const bytes = intact.reduce((sum, info) => sum + info.bytes, 0)
  const how = intact[0]?.record?.kind === 'mapped' ? 'its memory mapped' : 'its memory loaded whole'
  const more = damaged === 0 ? '' : `; ${damaged} damaged, rebuilt at next use`
  const seen = `as copies of a template, ${how} (${formatCount(intact.length, 'template')}, ${formatBytes(bytes)}${more})`
  return { ...heading, status: 'ok', seen }
}
