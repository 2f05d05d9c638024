/**
 * The offline model's report on a CSV: a Python script written for the columns that the profile found. It reads all
 * rows, writes a Markdown report and an SVG chart, and prints its findings, each on a line that begins `ANSWER: `.
 */
import { csvChartScript } from './csv-chart-script.ts'
import type { ReportChoice } from './csv-choice.ts'
import { csvReaderScript } from './csv-reader-script.ts'

/** Lines of a script's output that belong into the answer begin so. */
export const answerMark = 'ANSWER: '
/** A line that says why a script could not do its work begins so. */
export const failureMark = 'FAILED: '

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

/** The script for one file and the choice made for its columns. @param path relative to the workspace */
export function writeReportScript(path: string, choice: ReportChoice): string {
  const constants = [
    `PATH = ${JSON.stringify(path)}`,
    `MARK = ${JSON.stringify(answerMark)}`,
    // JSON inside a Python string: null, true and false are not Python's words.
    `C = json.loads(${JSON.stringify(JSON.stringify(choice))})`,
  ]
  const parts = [csvReaderScript, constants.join('\n'), numbersPart, csvChartScript, reportPart]
  return `${parts.map((part) => part.trim()).join('\n\n')}\n`
}
