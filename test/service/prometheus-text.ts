// A strict reader of the Prometheus text format 0.0.4, independent of the service: it refuses what a scraper could read in
// two ways, and families that contradict themselves.

export interface Family {
  readonly type: string
  readonly help: string
  readonly series: readonly Series[]
}

export interface Series {
  readonly name: string
  readonly labels: Readonly<Record<string, string>>
  readonly value: number
}

const nameForm = /^[a-zA-Z_:][a-zA-Z0-9_:]*/
const labelForm = /^([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\[\\n"])*)"(,|})/
const numberForm = /^(?:[+-]?(?:\d+(?:\.\d+)?(?:e[+-]?\d+)?|Inf)|NaN)$/
const types = ['counter', 'gauge', 'histogram', 'summary', 'untyped']

/** @throws {Error} naming the line */
export function readMetrics(text: string): Map<string, Family> {
  if (!text.endsWith('\n')) throw new Error('the last line has no end')
  const families = new Map<string, { type: string; help: string; series: Series[] }>()
  let help: { name: string; text: string } | undefined
  let current: string | undefined
  for (const line of text.slice(0, -1).split('\n')) {
    const [, word, name = '', rest = ''] = /^# (HELP|TYPE) (\S+) (.*)$/.exec(line) ?? []
    if (word === 'HELP') help = { name, text: plainText(rest) }
    else if (word === 'TYPE') {
      if (help?.name !== name || families.has(name) || !types.includes(rest)) throw wrong(line)
      families.set(name, { type: rest, help: help.text, series: [] })
      current = name
    } else {
      const family = families.get(current ?? '')
      const series = readSeries(line)
      if (family === undefined || !belongs(series.name, current ?? '', family.type)) throw wrong(line)
      if (family.series.some((other) => keyOf(other) === keyOf(series))) throw wrong(line)
      family.series.push(series)
    }
  }
  for (const [name, family] of families) checkFamily(name, family)
  return families
}

function readSeries(line: string): Series {
  const [name] = nameForm.exec(line) ?? []
  if (name === undefined) throw wrong(line)
  let rest = line.slice(name.length)
  const labels: Record<string, string> = {}
  if (rest.startsWith('{')) {
    for (rest = rest.slice(1); ; ) {
      const [whole, label, value = '', end] = labelForm.exec(rest) ?? []
      if (whole === undefined || label === undefined || Object.hasOwn(labels, label)) throw wrong(line)
      labels[label] = plainText(value)
      rest = rest.slice(whole.length)
      if (end === '}') break
    }
  }
  const number = rest.slice(1)
  if (!rest.startsWith(' ') || !numberForm.test(number)) throw wrong(line)
  return { name, labels, value: Number(number.replace('Inf', 'Infinity')) }
}

function belongs(series: string, family: string, type: string): boolean {
  if (type !== 'histogram') return series === family
  return [`${family}_bucket`, `${family}_sum`, `${family}_count`].includes(series)
}

/** Counters are no less than 0; buckets grow, and the last one counts all. */
function checkFamily(name: string, { type, series }: Family): void {
  if (series.length === 0) throw new Error(`${name} has no series`)
  if (type === 'counter' && series.some(({ value }) => !(value >= 0))) throw new Error(`${name} is negative`)
  if (type !== 'histogram') return
  const without = ({ labels: { le: _, ...labels } }: Series) => JSON.stringify(labels)
  for (const [labels, all] of Map.groupBy(series, without)) {
    const of = (end: string) => all.filter((one) => one.name === `${name}_${end}`)
    const bounds = of('bucket').map((one) => Number((one.labels.le ?? '').replace('Inf', 'Infinity')))
    const counts = of('bucket').map(({ value }) => value)
    const isAscending = (values: readonly number[]) =>
      values.every((value, at) => at === 0 || value >= (values[at - 1] ?? Number.NaN))
    if (!isAscending(bounds) || !isAscending(counts) || bounds.at(-1) !== Number.POSITIVE_INFINITY)
      throw new Error(`${name} ${labels}: the buckets do not ascend to +Inf`)
    if (of('count').length !== 1 || of('sum').length !== 1 || of('count')[0]?.value !== counts.at(-1))
      throw new Error(`${name} ${labels}: count and sum do not fit`)
  }
}

function keyOf({ name, labels }: Series): string {
  return JSON.stringify([name, Object.entries(labels).sort()])
}

function plainText(text: string): string {
  return text.replaceAll(/\\(.)/g, (_, escaped: string) => (escaped === 'n' ? '\n' : escaped))
}

function wrong(line: string): Error {
  return new Error(`not the Prometheus text format: ${JSON.stringify(line)}`)
}

/** The value of a series. Undefined: it is not there. */
export function seriesValue(
  families: ReadonlyMap<string, Family>,
  name: string,
  labels: Readonly<Record<string, string>> = {},
): number | undefined {
  const all = [...families.values()].flatMap(({ series }) => series)
  return all.find((one) => keyOf(one) === keyOf({ name, labels, value: 0 }))?.value
}
