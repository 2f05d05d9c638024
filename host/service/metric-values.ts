/**
 * The values of the metrics, and their text in the Prometheus format 0.0.4
 * (https://prometheus.io/docs/instrumenting/exposition_formats/). Takes metrics of the table alone.
 */
import { type LabelsOf, type Metric, type MetricName, metrics } from '#specs/service/metrics.ts'

/** One value of a gauge, or of a counter that is kept elsewhere. */
export type Sample = {
  readonly [N in MetricName]: (typeof metrics)[N] extends { labels: unknown }
    ? { readonly name: N; readonly labels: LabelsOf<N>; readonly value: number }
    : { readonly name: N; readonly value: number }
}[MetricName]

/** Counters and histograms that grow while the service runs. */
export class MetricValues {
  readonly #counters = new Map<MetricName, Map<string, number>>()
  readonly #histograms = new Map<MetricName, Map<string, Histogram>>()

  /** Series whose labels are all known begin with 0, so that their first increase is seen. */
  constructor() {
    for (const [name, metric] of entries)
      for (const labels of metric.type === 'gauge' ? [] : combinationsOf(metric)) {
        if (metric.type === 'histogram') this.#histogram(name, labels)
        else if (!name.startsWith('process_')) this.#count(name, labels, 0)
      }
  }

  add<N extends MetricName>(name: N, labels: LabelsOf<N>, by = 1): void {
    this.#count(name, labels, by)
  }

  observe<N extends MetricName>(name: N, labels: LabelsOf<N>, value: number): void {
    this.#histogram(name, labels).observe(value)
  }

  /** All metrics with their values, in the order of the table; one without a value has no lines. */
  text(samples: readonly Sample[]): string {
    const given = Map.groupBy(samples, ({ name }) => name)
    return entries
      .flatMap(([name, { type, help }]) => {
        const lines = [
          ...[...(this.#counters.get(name) ?? [])].map(([labels, value]) => lineOf(name, labels, value)),
          ...[...(this.#histograms.get(name) ?? [])].flatMap(([labels, one]) => one.lines(name, labels)),
          ...(given.get(name) ?? []).map((sample) =>
            lineOf(name, 'labels' in sample ? textOf(sample.labels) : '', sample.value),
          ),
        ]
        return lines.length === 0
          ? []
          : [`# HELP ${name} ${escapeHelp(help)}`, `# TYPE ${name} ${type}`, ...lines]
      })
      .concat('')
      .join('\n')
  }

  #count(name: MetricName, labels: Labels, by: number): void {
    const series = this.#counters.get(name) ?? new Map<string, number>()
    this.#counters.set(name, series)
    const key = textOf(labels)
    series.set(key, (series.get(key) ?? 0) + by)
  }

  #histogram(name: MetricName, labels: Labels): Histogram {
    const series = this.#histograms.get(name) ?? new Map<string, Histogram>()
    this.#histograms.set(name, series)
    const key = textOf(labels)
    const known = series.get(key)
    if (known !== undefined) return known
    const { buckets = [] }: Metric = metrics[name]
    const made = new Histogram(buckets)
    series.set(key, made)
    return made
  }
}

class Histogram {
  readonly #bounds: readonly number[]
  /** Values up to each bound and above the one before. */
  readonly #counts: number[]
  #count = 0
  #sum = 0

  constructor(bounds: readonly number[]) {
    this.#bounds = bounds
    this.#counts = bounds.map(() => 0)
  }

  observe(value: number): void {
    const at = this.#bounds.findIndex((bound) => value <= bound)
    if (at >= 0) this.#counts[at] = (this.#counts[at] ?? 0) + 1
    this.#count += 1
    this.#sum += value
  }

  lines(name: string, labels: string): string[] {
    const more = labels === '' ? '' : `${labels},`
    let below = 0
    const buckets = this.#bounds.map((bound, index) => {
      below += this.#counts[index] ?? 0
      return lineOf(`${name}_bucket`, `${more}le="${bound}"`, below)
    })
    return [
      ...buckets,
      lineOf(`${name}_bucket`, `${more}le="+Inf"`, this.#count),
      lineOf(`${name}_sum`, labels, this.#sum),
      lineOf(`${name}_count`, labels, this.#count),
    ]
  }
}

type Labels = Readonly<Record<string, string>>
const entries = Object.entries(metrics) as [MetricName, Metric][]

/** All combinations of labels; none where a label has values that are not known in advance. */
function combinationsOf({ labels = {} }: Metric): Labels[] {
  let all: Labels[] = [{}]
  for (const [label, values] of Object.entries(labels))
    all = all.flatMap((before) => (values ?? []).map((value) => ({ ...before, [label]: value })))
  return all
}

function lineOf(name: string, labels: string, value: number): string {
  return `${name}${labels === '' ? '' : `{${labels}}`} ${value}`
}

function textOf(labels: Labels): string {
  return Object.entries(labels)
    .map(([label, value]) => `${label}="${escapeValue(value)}"`)
    .join(',')
}

function escapeHelp(text: string): string {
  return text.replaceAll('\\', '\\\\').replaceAll('\n', '\\n')
}

function escapeValue(text: string): string {
  return escapeHelp(text.toWellFormed()).replaceAll('"', '\\"')
}
