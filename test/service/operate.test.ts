// The files of examples/operate/: what a dashboard and alerts ask for is exported, and systemd accepts the unit.
import { execFile } from 'node:child_process'
import { readFile, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { promisify } from 'node:util'
import { describe, expect, it } from 'vitest'
import { parse } from 'yaml'
import * as z from 'zod'
import { type Metric, metrics } from '#specs/service/metrics.ts'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { findProgram } from '../../host/processes/programs.ts'
import { commandsIn } from '../../host/test/support/run-command.ts'

const folder = path.join(import.meta.dirname, '../../examples/operate')
const read = (name: string) => readFile(path.join(folder, name), 'utf8')

/** What Grafana needs to import a dashboard. */
const Source = z.strictObject({ type: z.literal('prometheus'), uid: z.string().regex(/^\$\{datasource\}$/) })
const Dashboard = z.object({
  uid: z.string().max(40),
  title: z.string().min(1),
  schemaVersion: z.int().min(36),
  templating: z.object({
    list: z.array(z.object({ name: z.string(), type: z.string(), query: z.unknown() })),
  }),
  panels: z
    .array(
      z.object({
        id: z.int().min(1),
        type: z.enum(['timeseries', 'stat']),
        title: z.string().min(1),
        datasource: Source,
        gridPos: z.object({ x: z.int(), y: z.int(), w: z.int().min(1), h: z.int().min(1) }),
        targets: z
          .array(
            z.object({ refId: z.string(), datasource: Source, expr: z.string(), legendFormat: z.string() }),
          )
          .min(1),
      }),
    )
    .min(1),
})

/** Labels that the scraper adds. */
const scrapeLabels = ['instance', 'job']
const exported: ReadonlyMap<string, readonly string[]> = new Map(
  (Object.entries(metrics) as [string, Metric][]).flatMap(([name, { type, labels = {} }]) => {
    const own = [...Object.keys(labels), ...scrapeLabels]
    const series: [string, string[]][] = [[`${name}_bucket`, [...own, 'le']]]
    if (type !== 'histogram') return [[name, own] as [string, string[]]]
    return [
      ...series,
      [`${name}_sum`, own] as [string, string[]],
      [`${name}_count`, own] as [string, string[]],
    ]
  }),
)

/** What is wrong with the metrics, labels and values of a query. */
function problemsOf(query: string): string[] {
  const problems: string[] = []
  const used = [...query.matchAll(/\b((?:caisson|process)_\w+)(?:\{([^}]*)\})?/g)]
  if (used.length === 0) problems.push(`no metric in ${query}`)
  for (const [, name = '', matchers = ''] of used) {
    const labels = exported.get(name)
    if (labels === undefined) problems.push(`no metric ${name}`)
    for (const [, label = '', operator = '', value = ''] of matchers.matchAll(
      /(\w+)(=~|!~|!=|=)"([^"]*)"/g,
    )) {
      if (labels?.includes(label) !== true) problems.push(`${name} has no label ${label}`)
      const known = (metrics as Readonly<Record<string, Metric>>)[name]?.labels?.[label]
      const values = operator.endsWith('~') ? value.split('|') : [value]
      for (const one of known === undefined ? [] : values)
        if (known?.includes(one) === false) problems.push(`${name} has no ${label} ${one}`)
    }
  }
  const grouped = [...query.matchAll(/\bby \(([^)]*)\)/g)].flatMap(([, list = '']) => list.split(/,\s*/))
  const labels = new Set(used.flatMap(([, name = '']) => exported.get(name) ?? []))
  return [...problems, ...grouped.filter((label) => !labels.has(label)).map((label) => `no label ${label}`)]
}

describe('the dashboard for Grafana', () => {
  it('can be imported, and asks for metrics and labels that the service exports [H.02]', async () => {
    const { panels, templating } = Dashboard.parse(JSON.parse(await read('grafana-dashboard.json')))
    expect(templating.list.map(({ name, type }) => [name, type])).toEqual([
      ['datasource', 'datasource'],
      ['instance', 'query'],
    ])
    expect(new Set(panels.map(({ id }) => id)).size).toBe(panels.length)
    for (const { title, targets } of panels)
      for (const { expr, legendFormat } of targets) {
        expect([title, problemsOf(expr)]).toEqual([title, []])
        const shown = [...legendFormat.matchAll(/\{\{(\w+)\}\}/g)].map(([, label = '']) => label)
        for (const label of shown)
          expect([title, expr]).toEqual([title, expect.stringMatching(grouping(label, expr))])
      }
  })

  it('has no two panels in one place [H.02]', async () => {
    const { panels } = Dashboard.parse(JSON.parse(await read('grafana-dashboard.json')))
    const cells = panels.flatMap(({ gridPos: { x, y, w, h } }) =>
      Array.from({ length: w * h }, (_, at) => `${x + (at % w)},${y + Math.floor(at / w)}`),
    )
    expect(new Set(cells).size).toBe(cells.length)
    expect(Math.max(...panels.map(({ gridPos: { x, w } }) => x + w))).toBe(24)
  })

  it('would fail this test with an unknown metric, label or value [H.02]', () => {
    expect(problemsOf('sum(caisson_runs{status="nowhere"})')).toEqual(['caisson_runs has no status nowhere'])
    expect(problemsOf('sum by (run) (caisson_no_such)')).toEqual([
      'no metric caisson_no_such',
      'no label run',
    ])
    expect(problemsOf('caisson_run_start_seconds')).toEqual(['no metric caisson_run_start_seconds'])
  })
})

/** A label is there when nothing is summed up, or by the sum. */
function grouping(label: string, expr: string): RegExp {
  return /\bsum\b/.test(expr) ? new RegExp(`by \\([^)]*\\b${label}\\b`) : /./
}

describe('the files for Prometheus', () => {
  it('ask for metrics that the service exports, and scrape it with a key [H.02]', async () => {
    const Rules = z.strictObject({
      groups: z.array(
        z.strictObject({
          name: z.string(),
          rules: z
            .array(
              z.strictObject({
                alert: z.string(),
                expr: z.string(),
                for: z.string().regex(/^\d+[smh]$/),
                annotations: z.strictObject({ summary: z.string() }),
              }),
            )
            .min(1),
        }),
      ),
    })
    const { groups } = Rules.parse(parse(await read('caisson-alerts.yml')))
    for (const { alert, expr } of groups.flatMap(({ rules }) => rules))
      expect([alert, problemsOf(expr)]).toEqual([alert, []])
    expect(parse(await read('prometheus.yml'))).toMatchObject({
      scrape_configs: [{ authorization: { credentials_file: expect.any(String) } }],
      rule_files: ['caisson-alerts.yml'],
    })
  })
})

describe('the page about operation', () => {
  it('has a row for every metric, with its labels and its meaning [H.02, S1.15]', async () => {
    const page = await readFile(path.join(folder, '../../docs/operate.md'), 'utf8')
    const rows = [...page.matchAll(/^\| `((?:caisson|process)_\w+)` \| (.*?) ?\| (.*) \|$/gm)]
    const table = Object.entries(metrics) as [string, Metric][]
    expect(rows.map(([, name, labels, help]) => [name, labels, help])).toEqual(
      table.map(([name, { labels = {}, help }]) => [
        name,
        Object.keys(labels)
          .map((label) => `\`${label}\``)
          .join(', '),
        help,
      ]),
    )
  })
})

describe('the unit for systemd', () => {
  it('starts a command line that caisson accepts, in folders that it makes itself [H.02]', async () => {
    const unit = await read('caisson.service')
    const settings = Map.groupBy(unit.matchAll(/^(\w+)=(.*)$/gm), ([, name = '']) => name)
    const all = (name: string) => (settings.get(name) ?? []).map(([, , value = '']) => value)
    const [program, ...argv] = all('ExecStart')[0]?.split(' ') ?? []
    expect([program, argv[0]]).toEqual(['/usr/local/bin/caisson', 'serve'])
    // An option that is not there is refused before a file is read.
    const file = path.join(await temporaryFolder('unit'), 'missing.env')
    const caisson = commandsIn({ CAISSON_HOME: await temporaryFolder('home') })
    const tried = await caisson(...argv.map((word) => (word === '/etc/caisson/caisson.env' ? file : word)))
    expect([tried.code, tried.stderr]).toEqual([2, expect.stringContaining('missing.env" cannot be read')])
    expect(all('Environment')).toEqual(
      expect.arrayContaining([
        `CAISSON_HOME=/var/lib/${all('StateDirectory')[0]}`,
        `CAISSON_CACHE=/var/cache/${all('CacheDirectory')[0]}`,
        'ENVIRONMENT=production',
      ]),
    )
    expect([all('StateDirectoryMode'), all('CacheDirectoryMode')]).toEqual([['0700'], ['0700']])
    expect(all('User')).not.toEqual(['root'])
  })

  it('is accepted by systemd-analyze where that is installed [H.02]', async () => {
    const analyze = await findProgram('systemd-analyze')
    const unit = (await read('caisson.service')).replaceAll('/usr/local/bin/caisson', process.execPath)
    const verify = async (text: string) => {
      const file = path.join(await temporaryFolder('unit'), 'caisson.service')
      await writeFile(file, text)
      const { stderr } = await promisify(execFile)(analyze ?? '', ['verify', '--man=no', file], {
        timeout: 30_000,
      }).catch((error: { stderr?: string }) => ({ stderr: error.stderr ?? String(error) }))
      return stderr.split('\n').filter((line) => line.includes('caisson.service'))
    }
    // Without the program the test above is all that there is.
    if (analyze === undefined) return
    expect(await verify(unit)).toEqual([])
    expect(await verify(unit.replace('Restart=', 'Restrat='))).toEqual([expect.stringContaining('Restrat')])
  })
})
