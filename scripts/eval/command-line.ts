/** Options of `npm run eval`, checked. */
import { readFileSync } from 'node:fs'
import path from 'node:path'
import { parseArgs } from 'node:util'
import { parse } from 'smol-toml'
import { parseCount, parseDollars } from '../../host/cli/options.ts'
import { CaissonError, type ConfigInput } from '../../host/index.ts'
import { errorMessage } from '../../specs/errors.ts'
import { Effort } from '../../specs/protocol/plan.ts'

export const help = `Usage: npm run eval -- [options]
       npm run eval -- compare A B

Runs the tasks of the evaluation in VMs, and reports success, turns, tokens, cost and time.
Key and model are those of "caisson run". compare takes folders of two evaluations.

  --list             list the tasks
  --only NAME        this task; repeatable, or names with commas
  --tag TAG          tasks with this tag; repeatable, or tags with commas
  --tries N          attempts at each task (default 1)
  --model ID         model; --effort none|low|medium|high
  --config FILE      this configuration in the place of yours
  --parallel N       attempts at once (default 1)
  --max-cost USD     bound on the cost of what this command starts
  --out FOLDER       new folder for the results (default eval-results/DATE)
  --resume FOLDER    make the attempts that are missing in FOLDER
  --json             print the tasks or the results as JSON
`

export type Order =
  | { readonly kind: 'help' }
  | {
      readonly kind: 'list'
      readonly only: readonly string[]
      readonly tags: readonly string[]
      readonly json: boolean
    }
  | { readonly kind: 'compare'; readonly a: string; readonly b: string; readonly json: boolean }
  | RunOrder

export interface RunOrder {
  readonly kind: 'run'
  readonly json: boolean
  readonly parallel: number
  readonly config?: ConfigInput
  readonly maxCostUsd?: number
  readonly from:
    | { readonly resume: string }
    | {
        readonly resume?: never
        readonly only: readonly string[]
        readonly tags: readonly string[]
        readonly tries: number
        readonly model?: string
        readonly effort?: Effort
        /** Absent: a folder with the date as its name. */
        readonly out?: string
      }
}

const parallelMax = 16
const triesMax = 1_000
const configMaxBytes = 1024 ** 2
const options = {
  list: { type: 'boolean' },
  only: { type: 'string', multiple: true },
  tag: { type: 'string', multiple: true },
  tries: { type: 'string' },
  model: { type: 'string' },
  effort: { type: 'string' },
  config: { type: 'string' },
  parallel: { type: 'string' },
  'max-cost': { type: 'string' },
  out: { type: 'string' },
  resume: { type: 'string' },
  json: { type: 'boolean' },
  help: { type: 'boolean', short: 'h' },
} as const
/** An evaluation has these already. */
const fixedByResume = ['list', 'only', 'tag', 'tries', 'model', 'effort', 'out'] as const

/** @param directory that relative paths begin at. @throws {CaissonError} `invalid_options`, `invalid_config` */
export function readOrder(argv: readonly string[], directory: string): Order {
  const at = (place: string): string => path.resolve(directory, place)
  const { values, positionals } = parseWords(argv)
  if (values.help === true) return { kind: 'help' }
  const json = values.json === true
  const [command, a, b, ...more] = positionals
  if (command === 'compare') {
    const others = Object.keys(values).filter((name) => name !== 'json')
    if (a === undefined || b === undefined || more.length > 0 || others.length > 0)
      throw usage('expected two folders after compare, and --json at most')
    return { kind: 'compare', a: at(a), b: at(b), json }
  }
  if (command !== undefined) throw usage(`unknown argument ${JSON.stringify(command)}`)
  const only = splitList(values.only)
  const tags = splitList(values.tag)
  if (values.list === true && values.resume === undefined) return { kind: 'list', only, tags, json }
  const maxCost = values['max-cost']
  const shared = {
    ...{ kind: 'run' as const, json },
    parallel: readWhole('--parallel', values.parallel, parallelMax),
    ...(values.config === undefined ? {} : { config: readConfigFile(at(values.config)) }),
    ...(maxCost === undefined ? {} : { maxCostUsd: readWith('--max-cost', maxCost, parseDollars) }),
  }
  if (values.resume !== undefined) {
    const both = fixedByResume.find((name) => values[name] !== undefined)
    if (both !== undefined)
      throw usage(`--${both} cannot be given with --resume, which continues as it was started`)
    return { ...shared, from: { resume: at(values.resume) } }
  }
  const effort = values.effort === undefined ? undefined : readEffort(values.effort)
  return {
    ...shared,
    from: {
      ...{ only, tags, tries: readWhole('--tries', values.tries, triesMax) },
      ...(values.model === undefined ? {} : { model: values.model }),
      ...(effort === undefined ? {} : { effort }),
      ...(values.out === undefined ? {} : { out: at(values.out) }),
    },
  }
}

function parseWords(argv: readonly string[]) {
  try {
    return parseArgs({ args: [...argv], options, allowPositionals: true })
  } catch (error) {
    // Node adds advice about positional arguments, of no use here.
    throw usage(errorMessage(error).replace(/\. To specify a positional argument .*$/s, ''))
  }
}

function usage(what: string): CaissonError {
  return new CaissonError('invalid_options', what, { remedy: 'see: npm run eval -- --help' })
}

const splitList = (texts: readonly string[] = []): string[] =>
  texts.flatMap((text) => text.split(',')).filter((word) => word !== '')

function readWhole(name: string, text: string | undefined, most: number): number {
  const count = text === undefined ? 1 : readWith(name, text, parseCount)
  if (count > most) throw usage(`${name}: expected at most ${most}`)
  return count
}

function readWith<T>(name: string, text: string, read: (text: string) => T): T {
  try {
    return read(text)
  } catch (error) {
    throw usage(`${name}: ${errorMessage(error)}`)
  }
}

function readEffort(text: string): Effort {
  const read = Effort.safeParse(text)
  if (!read.success) throw usage(`--effort: expected one of ${Effort.options.join(', ')}`)
  return read.data
}

/** The host checks its settings. */
function readConfigFile(file: string): ConfigInput {
  try {
    const text = readFileSync(file, 'utf8')
    if (text.length > configMaxBytes) throw new TypeError(`it is longer than ${configMaxBytes} bytes`)
    return parse(text, { maxDepth: 32, unsafeKeyBehaviour: 'throw' }) as ConfigInput
  } catch (error) {
    // Not the lines of the file, which may have a key.
    const why = errorMessage(error).split('\n')[0] ?? ''
    throw new CaissonError('invalid_config', `--config ${file} cannot be used: ${why}`)
  }
}
