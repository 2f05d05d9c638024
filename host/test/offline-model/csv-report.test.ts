import { execFileSync } from 'node:child_process'
import { copyFileSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { afterEach, describe, expect, it } from 'vitest'
import { chooseReport, findProfile } from '../../offline-model/act-csv.ts'
import { writeProfileScript } from '../../offline-model/csv-profile-script.ts'
import { writeReportScript } from '../../offline-model/csv-report-script.ts'

const folders: string[] = []
afterEach(() => {
  for (const folder of folders.splice(0)) rmSync(folder, { recursive: true, force: true })
})

function makeFolder(): string {
  const folder = mkdtempSync(path.join(tmpdir(), 'caisson-csv-'))
  folders.push(folder)
  return folder
}

/** The interpreter itself: a version manager's shim would cost more than the scripts. */
const python = execFileSync('python3', ['-c', 'import sys; print(sys.executable)'], {
  encoding: 'utf8',
}).trim()

function runPython(folder: string, code: string): string {
  return execFileSync(python, ['-'], {
    cwd: folder,
    input: code,
    encoding: 'utf8',
    maxBuffer: 1e8,
    stdio: ['pipe', 'pipe', 'pipe'],
  })
}

interface Report {
  readonly output: string
  readonly markdown: string
  readonly svg: string
  /** Cells of the table under a heading, by the first cell of each row. */
  table(heading: string): Map<string, string[]>
}

function report(folder: string, name: string): Report {
  const profile = findProfile(runPython(folder, writeProfileScript(name)))
  if (profile === null || 'error' in profile) throw new Error(`no profile: ${JSON.stringify(profile)}`)
  const choice = chooseReport(profile, { report: 'report.md', chart: 'chart.svg' })
  const output = runPython(folder, writeReportScript(name, choice))
  const markdown = readFileSync(path.join(folder, 'report.md'), 'utf8')
  const svg = readFileSync(path.join(folder, 'chart.svg'), 'utf8')
  return { output, markdown, svg, table: (heading) => readTable(markdown, heading) }
}

function reportOn(content: string | Buffer, name = 'data.csv'): Report {
  const folder = makeFolder()
  writeFileSync(path.join(folder, name), content)
  return report(folder, name)
}

function readTable(markdown: string, heading: string): Map<string, string[]> {
  const lines = markdown.split('\n')
  const rows = new Map<string, string[]>()
  for (let at = lines.indexOf(`## ${heading}`) + 2; at > 1 && lines[at]?.startsWith('|'); at += 1) {
    const cells = (lines[at] ?? '')
      .slice(2, -2)
      .split(' | ')
      .map((cell) => cell.replaceAll('\\', ''))
    rows.set(cells[0] ?? '', cells.slice(1))
  }
  return rows
}

// ---- the same numbers, computed another way ----------------------------------------------------------------------

const round = (value: number): number => Number(value.toPrecision(10))
/** As the report shows them: three places, or four figures below one. */
function near(shown: string | undefined, value: number): void {
  expect(Number(shown)).toBeCloseTo(round(value), Math.abs(value) >= 1 || value === 0 ? 2 : 4)
}

/** Running sums by Welford's method, and quantiles by rank: not how the script does it. */
function summarize(values: readonly number[]) {
  let mean = 0
  let squares = 0
  values.forEach((value, index) => {
    const delta = value - mean
    mean += delta / (index + 1)
    squares += delta * (value - mean)
  })
  const sorted = Float64Array.from(values).sort()
  const rank = (share: number): number => {
    const place = share * (sorted.length - 1)
    const [low, high] = [sorted[Math.floor(place)] ?? NaN, sorted[Math.ceil(place)] ?? NaN]
    return low * (1 - (place % 1)) + high * (place % 1)
  }
  return {
    count: values.length,
    mean,
    deviation: Math.sqrt(squares / (values.length - 1)),
    min: Math.min(...values),
    quartiles: [rank(0.25), rank(0.5), rank(0.75)] as const,
    max: Math.max(...values),
    sum: values.reduce((sum, value) => sum + value, 0),
  }
}

function expectNumbers(cells: readonly string[] | undefined, values: readonly number[]): void {
  const own = summarize(values)
  const [count, mean, deviation, min, low, median, high, max, sum] = cells ?? []
  expect(Number(count)).toBe(own.count)
  near(mean, own.mean)
  near(deviation, own.deviation)
  near(min, own.min)
  near(low, own.quartiles[0])
  near(median, own.quartiles[1])
  near(high, own.quartiles[2])
  near(max, own.max)
  near(sum, own.sum)
}

describe('the report on the example', () => {
  it('has the right numbers: a computation in another language agrees [S4.06]', () => {
    const folder = makeFolder()
    const source = new URL('../../../examples/seattle-weather/seattle-weather.csv', import.meta.url)
    copyFileSync(source, path.join(folder, 'seattle-weather.csv'))
    const made = report(folder, 'seattle-weather.csv')
    const rows = readFileSync(source, 'utf8')
      .trim()
      .split('\n')
      .slice(1)
      .map((line) => line.split(','))
    const columns = { precipitation: 1, temp_max: 2, temp_min: 3, wind: 4 }
    expect(rows.length).toBeGreaterThan(1_000)
    expect(made.output).toContain(
      `has ${rows.length} rows and 6 columns; 0 of ${rows.length * 6} values are missing`,
    )
    for (const [name, index] of Object.entries(columns)) {
      expectNumbers(
        made.table('Numbers').get(name),
        rows.map((row) => Number(row[index])),
      )
    }
    const groups = [
      ['By weather', Map.groupBy(rows, (row) => row[5] ?? '')],
      ['By month of date', Map.groupBy(rows, (row) => (row[0] ?? '').slice(0, 7))],
    ] as const
    for (const [heading, byKey] of groups) {
      const table = made.table(heading)
      for (const [key, members] of byKey) {
        const [count, ...means] = table.get(key) ?? []
        expect(Number(count)).toBe(members.length)
        Object.values(columns).forEach((index, at) => {
          near(means[at], summarize(members.map((row) => Number(row[index]))).mean)
        })
      }
    }
    const top = rows.toSorted((a, b) => Number(b[1]) - Number(a[1]))[0]
    expect(made.table('The 10 highest values of precipitation').get('1')).toEqual([
      top?.[1],
      top?.[0],
      top?.[5],
    ])
    expect(made.svg.match(/<circle /g)).toHaveLength(
      Map.groupBy(rows, (row) => (row[0] ?? '').slice(0, 7)).size,
    )
  })
})

describe('the report on a file that is not so tidy', () => {
  it('reads quotes, separators and line ends inside fields [S4.06]', () => {
    const made = reportOn(
      'name,city,score\r\n"Smith, ""Al""","New\r\nYork",1\r\nLee,Paris,3\r\nKim,Paris,5\r\n',
    )
    expect(made.output).toContain('3 rows and 3 columns')
    expectNumbers(made.table('Numbers').get('score'), [1, 3, 5])
    expect(made.table('By city').get('Paris')).toEqual(['2', '4'])
  })

  it('leaves missing values out of every mean and counts them [S4.06]', () => {
    const made = reportOn('group,x\na,1\na,\nb,NA\nb,4\n,7\nb,n/a\n')
    expectNumbers(made.table('Numbers').get('x'), [1, 4, 7])
    expect(made.table('Columns').get('x')).toEqual(['number', '3', '3', '0'])
    expect(made.table('By group').get('a')).toEqual(['2', '1'])
    expect(made.output).toContain('4 of 12 values are missing')
  })

  it.each([
    ['semicolons and decimal commas', 'a;b\n1,5;x\n2,5;y\n1.000,25;x\n', [1.5, 2.5, 1000.25]],
    ['tabs', 'a\tb\n1.5\tx\n2.5\ty\n', [1.5, 2.5]],
    ['bars', 'a|b\n1|x\n2|y\n', [1, 2]],
    ['a byte order mark', '\ufeffa,b\n1,x\n2,y\n', [1, 2]],
    ['thousands separators', 'a,b\n"1,234",x\n"1,000,000.5",y\n12,z\n', [1234, 1000000.5, 12]],
    ['currency and percent signs', 'a,b\n$1.50,x\n€2,y\n3%,z\n', [1.5, 2, 3]],
    ['exponents and signs', 'a,b\n1e3,x\n-2.5,y\n+.5,z\n', [1000, -2.5, 0.5]],
  ])('reads %s [S4.06]', (_, content, values) => {
    expectNumbers(reportOn(content).table('Numbers').get('a'), values)
  })

  it('reads bytes that are not UTF-8, and UTF-16 [S4.06]', () => {
    const latin = reportOn(Buffer.from('stadt,n\nKöln,1\nKöln,2\nMünchen,5\n', 'latin1'))
    expect(latin.table('By stadt').get('Köln')).toEqual(['2', '1.5'])
    const utf16 = Buffer.concat([Buffer.of(0xff, 0xfe), Buffer.from('a,b\n1,é\n3,é\n', 'utf16le')])
    expectNumbers(reportOn(utf16).table('Numbers').get('a'), [1, 3])
  })

  it.each([
    ['2024-03-01', '2024-03-01'],
    ['2024/3/1', '2024-03-01'],
    ['01.03.2024', '2024-03-01'],
    ['03/01/2024', '2024-03-01'],
    ['13/03/2024', '2024-03-13'],
    ['2024-03-01T12:30:00Z', '2024-03-01'],
    ['20240301', '2024-03-01'],
  ])('knows %s for a date [S4.06]', (text, iso) => {
    expect(reportOn(`when,x\n${text},1\n${text},2\n`).output).toContain(`when runs from ${iso} to ${iso}.`)
  })

  it.each([
    ['one column', 'n\n1\n2\n3\n', '3 rows and 1 columns'],
    ['no numbers', 'a,b\nx,y\nx,z\nw,z\n', '3 rows and 2 columns'],
    ['a header alone', 'a,b,c\n', '0 rows and 3 columns'],
    ['nothing', '', '0 rows and 0 columns'],
    ['empty lines', '\n\n\n', '0 rows and 0 columns'],
    ['no header', '1,2\n3,4\n5,6\n', '3 rows and 2 columns'],
    ['equal names', 'a,a,\n1,2,3\n4,5,6\n', '2 rows and 3 columns'],
    ['short and long rows', 'a,b\n1\n2,3,4\n5,6\n7,8\n', '4 rows and 2 columns'],
    ['only missing values', 'a,b\n,\n-,NA\n', '1 rows and 2 columns'],
    ['one value for all', 'a\n5\n5\n5\n', '3 rows and 1 columns'],
    ['a quote that never ends', 'a,b\n"x,1\ny,2\n', 'rows and 2 columns'],
    ['NUL bytes', 'a,b\n\u0000,1\nx,2\n', '2 rows and 2 columns'],
    ['huge numbers', 'a\n1e308\n1e149\n-1e149\n', '3 rows and 1 columns'],
    ['negative numbers alone', 'g,a\nx,-5\ny,-7\n', '2 rows and 2 columns'],
  ])('comes to an end with %s [S4.06]', (_, content, shape) => {
    const made = reportOn(content)
    expect(made.output).toContain(shape)
    expect(made.svg).toMatch(/^<svg [\s\S]*<\/svg>\n$/)
  })

  it('cannot be made to carry markup or control characters into report or chart [S4.06]', () => {
    const nasty = '<script>alert(1)</script>|*x*\u001b[31m\u202e`'
    const made = reportOn(`"${nasty}",n\n"${nasty}",1\n"${nasty}",2\n"</text><b>",3\n`)
    for (const text of [made.svg, made.markdown, made.output]) {
      for (const sign of ['\u001b', '\u202e']) expect(text).not.toContain(sign)
    }
    expect(made.svg).not.toMatch(/<script|<b>/)
    expect(made.markdown).not.toMatch(/(?<!\\)<script/)
  })

  it('handles a name with quotes and spaces, beside other folders [S4.06]', () => {
    expect(reportOn('a,b\n1,x\n2,y\n', 'it\'s "odd" $(x).csv').output).toContain('2 rows')
  })

  it('reads a hundred thousand rows and gets the sum right [S4.06]', () => {
    const rows = Array.from({ length: 100_000 }, (_, index) => [index % 7, (index * 37) % 1_000] as const)
    const made = reportOn(`g,x\n${rows.map(([group, value]) => `g${group},${value}`).join('\n')}\n`)
    expectNumbers(
      made.table('Numbers').get('x'),
      rows.map(([, value]) => value),
    )
    expect(made.table('By g').get('g3')?.[0]).toBe(String(rows.filter(([group]) => group === 3).length))
  }, 60_000)
})
