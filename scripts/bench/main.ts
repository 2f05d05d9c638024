/** The common command line of the benchmarks: `--json`, `--quick` and `--only PART,PART`. */

import { type ParseArgsOptionsConfig, parseArgs } from 'node:util'
import type { Figures } from './bench.ts'

/** The measurements of one benchmark by name; `--only` chooses among them. */
export type Parts<Input> = Readonly<Record<string, (input: Input) => Promise<Figures>>>

/** Parses the options; `own` are those of this benchmark alone. */
export function parseBenchOptions<Own extends ParseArgsOptionsConfig>(parts: Parts<never>, own: Own) {
  const { values } = parseArgs({
    options: {
      ...own,
      json: { type: 'boolean', default: false },
      quick: { type: 'boolean', default: false },
      only: { type: 'string', default: Object.keys(parts).join(',') },
    } as const,
  })
  return values
}

/** Runs the named parts in order. @throws for an unknown name */
export async function runParts<Input>(
  parts: Parts<Input>,
  only: string,
  input: Input,
): Promise<Record<string, unknown>> {
  const figures: Record<string, unknown> = {}
  for (const name of only.split(',').filter((word) => word !== '')) {
    const part = Object.hasOwn(parts, name) ? parts[name] : undefined
    if (part === undefined)
      throw new Error(`--only takes names of ${Object.keys(parts).join(', ')}; "${name}" is none of them`)
    Object.assign(figures, await part(input))
  }
  return figures
}
