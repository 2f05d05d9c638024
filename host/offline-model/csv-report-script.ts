/**
 * The offline model's report on a CSV: a Python script written for the columns that the profile found. It reads all
 * rows, writes a Markdown report and an SVG chart, and prints its findings, each on a line that starts with `ANSWER: `.
 */
import { csvReaderScript } from './csv-profile-script.ts'
import { answerMark } from './reply.ts'

const numbersPart = String.raw`
def shown(value):
    if value is None:
        return ''
    if value == int(value) and abs(value) < 1e15:
        return str(int(value))
    if 1 <= abs(value) < 1e15:
        return ('%.3f' % value).rstrip('0').rstrip('.')
    return '%.4g' % value

def quantile(ordered, share):
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)

def mean(values):
    return math.fsum(values) / len(values) if values else None

def deviation(values):
    if len(values) < 2:
        return None
    middle = mean(values)
    return math.sqrt(math.fsum((value - middle) ** 2 for value in values) / (len(values) - 1))

def cell(text):
    text = ''.join(char if char.isprintable() else ' ' for char in str(text))
    text = ' '.join(text.split())
    text = text if len(text) <= 60 else text[:59] + '\u2026'
    return re.sub(r'([\\|<>*_\[\]\x60])', r'\\\1', text)

def table_lines(head, body, numeric_from=1):
    rule = ['---' if index < numeric_from else '---:' for index in range(len(head))]
    lines = [head, rule] + body
    return ['| ' + ' | '.join(str(part) for part in line) + ' |' for line in lines] + ['']
`

/** Chooses the points of the chart and draws it as SVG. */
const chartPart = String.raw`
def chart_points(values, header, rows):
    metric = C['metrics'][0] if C['metrics'] else None
    if C['date'] is not None and metric is not None:
        groups = collections.defaultdict(list)
        for date, value in zip(values[C['date']], values[metric]):
            if date is not None and value is not None:
                groups[str(date)[:C['period']]].append(value)
        period = {4: 'year', 7: 'month', 10: 'day'}[C['period']]
        return 'Mean of %s by %s' % (header[metric], period), [(key, mean(groups[key])) for key in sorted(groups)], True
    if C['category'] is not None:
        groups = collections.defaultdict(list)
        for place, key in enumerate(values[C['category']]):
            if key is not None and (metric is None or values[metric][place] is not None):
                groups[key].append(1 if metric is None else values[metric][place])
        order = sorted(groups, key=lambda key: (-len(groups[key]), str(key)))[:20]
        if metric is None:
            return 'Rows by %s' % header[C['category']], [(key, len(groups[key])) for key in order], False
        return 'Mean of %s by %s' % (header[metric], header[C['category']]), [(key, mean(groups[key])) for key in order], False
    if metric is not None:
        numbers = [value for value in values[metric] if value is not None]
        low, high = min(numbers), max(numbers)
        bins = min(12, max(1, len(set(numbers))))
        step = (high - low) / bins or 1
        counts = [0] * bins
        for number in numbers:
            counts[min(bins - 1, int((number - low) / step))] += 1
        return 'Distribution of %s' % header[metric], [(shown(low + index * step), count) for index, count in enumerate(counts)], False
    return 'No chart: no column to show', [], False

def svg_text(text, limit=40):
    text = ''.join(char if char.isprintable() else ' ' for char in str(text))
    text = text if len(text) <= limit else text[:limit - 1] + '\u2026'
    return text.replace('&', '&amp;').replace('<', '&lt;').replace('>', '&gt;').replace('"', '&quot;')

def ticks(low, high):
    span = high - low or abs(high) or 1
    step = 10 ** math.floor(math.log10(span / 4))
    step = next(step * factor for factor in (1, 2, 5, 10) if span / (step * factor) <= 5)
    first = math.floor(low / step)
    return [step * index for index in range(first, first + 9) if step * (index - 1) < high]

def draw_chart(title, points, line):
    width, height, left, right, top, bottom = 800, 420, 70, 20, 50, 90
    out = ['<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">' % (width, height),
           '<rect width="100%" height="100%" fill="white"/>',
           '<text x="%d" y="28" font-size="16" text-anchor="middle">%s</text>' % (width // 2, svg_text(title, 90))]
    if points:
        marks = ticks(min(0, min(value for key, value in points)), max(0, max(value for key, value in points)))
        low, high = marks[0], marks[-1] if marks[-1] > marks[0] else marks[0] + 1
        def x(index):
            return left + (width - left - right) * (index + 0.5) / len(points)
        def y(value):
            return top + (height - top - bottom) * (high - value) / (high - low)
        for mark in marks:
            out.append('<line x1="%d" x2="%d" y1="%.1f" y2="%.1f" stroke="#ddd"/>' % (left, width - right, y(mark), y(mark)))
            out.append('<text x="%d" y="%.1f" text-anchor="end">%s</text>' % (left - 8, y(mark) + 4, shown(round(mark, 10))))
        if line:
            path = ' '.join('%.1f,%.1f' % (x(index), y(value)) for index, (key, value) in enumerate(points))
            out.append('<polyline points="%s" fill="none" stroke="#2563eb" stroke-width="2"/>' % path)
        thin = max(1, math.ceil(len(points) / 16))
        for index, (key, value) in enumerate(points):
            if line:
                out.append('<circle cx="%.1f" cy="%.1f" r="2.5" fill="#2563eb"><title>%s: %s</title></circle>' % (x(index), y(value), svg_text(key), shown(value)))
            else:
                wide = 0.7 * (width - left - right) / len(points)
                out.append('<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="#2563eb"><title>%s: %s</title></rect>' % (
                    x(index) - wide / 2, min(y(value), y(0)), wide, abs(y(value) - y(0)), svg_text(key), shown(value)))
            if index % thin == 0:
                out.append('<text transform="translate(%.1f,%d) rotate(-40)" text-anchor="end">%s</text>' % (x(index) + 4, height - bottom + 16, svg_text(key, 14)))
    out.append('</svg>')
    return '\n'.join(out) + '\n'
`

const reportPart = String.raw`
table = load(PATH, C['separator'])
header, rows = table['header'], table['rows']
kinds = [(column['type'], column['style']) for column in C['columns']]

def column_values(index):
    kind, style = kinds[index]
    out = []
    for row in rows:
        text = row[index]
        if is_missing(text):
            out.append(None)
        elif kind == 'number':
            out.append(to_number(text, style))
        elif kind == 'date':
            out.append(to_date(text, style))
        else:
            out.append(' '.join(text.split()))
    return out

values = [column_values(index) for index in range(len(kinds))]
findings, out = [], []
name = os.path.basename(PATH)
cells = len(rows) * len(kinds)
absent = [sum(is_missing(row[index]) for row in rows) for index in range(len(kinds))]
missing = sum(absent)
findings.append('%s has %d rows and %d columns; %d of %d values are missing.' % (name, len(rows), len(header), missing, cells))
out += ['# Report on ' + cell(name), '', '%d rows, %d columns, %d missing values. Encoding %s, separator %s.' % (
    len(rows), len(header), missing, table['encoding'], {'\t': 'tab', ',': 'comma', ';': 'semicolon', '|': 'bar'}[table['separator']]), '']
if table['ragged']:
    out += ['%d rows have more or fewer fields than the header; missing fields count as missing values.' % table['ragged'], '']
if not table['named'] and header:
    out += ['The first row holds numbers, so the columns have no names of their own.', '']
if len(header) > len(kinds):
    out += ['Only the first %d columns are described.' % len(kinds), '']
if kinds:
    out += ['![Chart](%s)' % os.path.basename(C['chart']).replace(' ', '%20'), '', '## Columns', '']
    body = []
    for index, (kind, style) in enumerate(kinds):
        present = [row[index] for row in rows if not is_missing(row[index])]
        odd = len(present) - sum(value is not None for value in values[index])
        body.append([cell(header[index]), kind, absent[index], len(set(present)), odd])
    out += table_lines(['Column', 'Type', 'Missing', 'Distinct', 'Invalid'], body, 2)

numeric = [index for index, (kind, style) in enumerate(kinds) if kind == 'number']
if numeric:
    body = []
    for index in numeric:
        ordered = sorted(value for value in values[index] if value is not None)
        figures = [len(ordered), mean(ordered), deviation(ordered), ordered[0], quantile(ordered, 0.25), quantile(ordered, 0.5), quantile(ordered, 0.75), ordered[-1], math.fsum(ordered)]
        body.append([cell(header[index])] + [shown(figure) for figure in figures])
        if index in C['metrics'][:3]:
            findings.append('%s: mean %s, median %s, from %s to %s.' % (header[index], shown(figures[1]), shown(figures[5]), shown(ordered[0]), shown(ordered[-1])))
    out += ['## Numbers', ''] + table_lines(['Column', 'Count', 'Mean', 'Std dev', 'Min', '25 %', 'Median', '75 %', 'Max', 'Sum'], body)

for index, (kind, style) in enumerate(kinds):
    if kind == 'date':
        dates = [value for value in values[index] if value is not None]
        findings.append('%s runs from %s to %s.' % (header[index], min(dates), max(dates)))
        out += ['%s runs from %s to %s.' % (cell(header[index]), min(dates), max(dates)), '']

def group_table(title, keys, by_size):
    groups = collections.defaultdict(list)
    for place, key in enumerate(keys):
        if key is not None:
            groups[key].append(place)
    order = sorted(groups, key=lambda key: (-len(groups[key]), str(key))) if by_size else sorted(groups)
    metrics = C['metrics'][:4]
    body = []
    for key in order[:C['groups']]:
        means = [mean([values[index][place] for place in groups[key] if values[index][place] is not None]) for index in metrics]
        body.append([cell(key), len(groups[key])] + [shown(figure) for figure in means])
    out.extend(['## ' + title, ''] + table_lines(['Group', 'Rows'] + ['Mean of ' + cell(header[index]) for index in metrics], body))
    if len(order) > C['groups']:
        out.extend(['%d further groups are not shown.' % (len(order) - C['groups']), ''])
    return groups, order

if C['category'] is not None:
    groups, order = group_table('By ' + cell(header[C['category']]), values[C['category']], True)
    if order:
        findings.append('Most frequent %s: %s (%d of %d rows).' % (header[C['category']], cell(order[0]), len(groups[order[0]]), len(rows)))
if C['date'] is not None:
    keys = [None if date is None else str(date)[:C['period']] for date in values[C['date']]]
    group_table('By %s of %s' % ({4: 'year', 7: 'month', 10: 'day'}[C['period']], cell(header[C['date']])), keys, False)
if C['top'] is not None:
    places = [place for place, value in enumerate(values[C['top']]) if value is not None]
    places.sort(key=lambda place: (-values[C['top']][place], place))
    labels = C['labels']
    body = [[rank + 1, shown(values[C['top']][place])] + [cell(rows[place][index]) for index in labels] for rank, place in enumerate(places[:10])]
    out += ['## The 10 highest values of ' + cell(header[C['top']]), ''] + table_lines(['Rank', cell(header[C['top']])] + [cell(header[index]) for index in labels], body, 0)
    if places:
        label = ', '.join(cell(rows[places[0]][index]) for index in labels)
        findings.append('Highest %s: %s%s.' % (header[C['top']], shown(values[C['top']][places[0]]), ' (%s)' % label if label else ''))

title, points, line = chart_points(values, header, rows)
with open(C['chart'], 'w', encoding='utf-8') as file:
    file.write(draw_chart(title, points, line))
if points:
    out += ['## Chart', '', cell(title) + '.', '']
out += ['---', '', 'Made by the offline model of Caisson: the same general report for any CSV file. All numbers were computed by a Python script over all rows; empty fields, NA, N/A, NaN, null, none, - and ? count as missing.']
with open(C['report'], 'w', encoding='utf-8') as file:
    file.write('\n'.join(out) + '\n')
for finding in findings:
    print(MARK + ''.join(char if char.isprintable() else ' ' for char in finding))
print(MARK + 'Wrote %s and %s.' % (C['report'], C['chart']))
`

/** What the report's script is written for; column numbers count from 0. */
export interface ReportChoice {
  readonly separator: string
  readonly columns: readonly { readonly type: string; readonly style: string }[]
  /** Columns to average; the chart shows the first. */
  readonly metrics: readonly number[]
  /** The column to group by. */
  readonly category: number | null
  readonly date: number | null
  /** Characters of an ISO date that name a period: 4 year, 7 month, 10 day. */
  readonly period: 4 | 7 | 10
  /** The column whose ten highest values are listed. */
  readonly top: number | null
  /** Columns that identify the row of a high value. */
  readonly labels: readonly number[]
  /** Most groups in a table. */
  readonly groups: number
  readonly report: string
  readonly chart: string
}

/** The script for one file and the choice made for its columns. @param path relative to the workspace */
export function writeReportScript(path: string, choice: ReportChoice): string {
  const constants = [
    `PATH = ${JSON.stringify(path)}`,
    `MARK = ${JSON.stringify(answerMark)}`,
    // JSON inside a Python string, as Python has no null, true and false.
    `C = json.loads(${JSON.stringify(JSON.stringify(choice))})`,
  ]
  const parts = [csvReaderScript, constants.join('\n'), numbersPart, chartPart, reportPart]
  return `${parts.map((part) => part.trim()).join('\n\n')}\n`
}
