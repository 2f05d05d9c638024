/** The profile of a CSV: a Python script that prints one line of JSON that describes each column. */

/** Prefix of the output line with the profile. */
export const profileMark = 'PROFILE '
/** Columns of a profile; the report says when there are more. */
const profileMaxColumns = 120

const body = `
def style_of(values):
    enough = SHARE * len(values)
    if not any(CODE.fullmatch(bare(value)) for value in values):
        for kind in ('plain', 'comma'):
            if sum(to_number(value, kind) is not None for value in values) >= enough:
                compact = DATES['compact'][0]
                if kind == 'plain' and all(compact.fullmatch(value.strip()) and to_date(value, 'compact') for value in values):
                    return 'date', 'compact'
                return 'number', kind
    for kind in DATES:
        if sum(to_date(value, kind) is not None for value in values) >= enough:
            return 'date', kind
    return 'text', ''

def describe(name, values):
    present = [value for value in values if not is_missing(value)]
    distinct = len(set(present))
    column = {'name': name, 'type': 'empty', 'style': '', 'missing': len(values) - len(present), 'distinct': distinct}
    if not present:
        return column
    column['type'], column['style'] = style_of(present)
    if column['type'] == 'number':
        numbers = [to_number(value, column['style']) for value in present]
        numbers = [number for number in numbers if number is not None]
        column['integer'] = all(number == int(number) for number in numbers)
        column['min'], column['max'] = min(numbers), max(numbers)
    if column['type'] == 'date':
        dates = [to_date(value, column['style']) for value in present]
        dates = [date for date in dates if date is not None]
        column['first'], column['last'] = min(dates).isoformat(), max(dates).isoformat()
    return column

try:
    table = load(PATH)
    rows, header = table['rows'], table['header']
    columns = [describe(header[index], [row[index] for row in rows]) for index in range(min(len(header), LIMIT))]
    profile = {'rows': len(rows), 'width': len(header), 'columns': columns}
    profile.update({key: table[key] for key in ('separator', 'encoding', 'ragged', 'named')})
except OSError as error:
    profile = {'error': error.strerror or 'cannot be read'}
except (csv.Error, MemoryError) as error:
    profile = {'error': 'cannot be read as CSV (%s)' % error}
print(MARK + json.dumps(profile))
`

/** The script for one file. @param path relative to the workspace */
export function writeProfileScript(path: string): string {
  const constants = [
    `PATH = ${JSON.stringify(path)}`,
    `LIMIT = ${profileMaxColumns}`,
    `MARK = ${JSON.stringify(profileMark)}`,
  ]
  return `${csvReaderScript.trim()}\n\n${constants.join('\n')}\n${body.trim()}\n`
}

/**
 * The start of both Python scripts: reads any CSV file (encoding, separator, header, missing values) and recognizes numbers
 * and dates. Uses only the standard library of Python 3.11.
 */
export const csvReaderScript = String.raw`
import collections, csv, datetime, io, json, math, os, re, sys

csv.field_size_limit(2**31 - 1)
MISSING = {'', 'na', 'n/a', 'nan', 'null', 'none', '-', '?', '#n/a'}
# A share of values may be of another kind and is counted as invalid; more makes the column text.
SHARE = 0.98
PLAIN = re.compile(r'[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,3})?')
GROUPED = re.compile(r'[+-]?\d{1,3}(?:,\d{3})+(?:\.\d+)?')
COMMA = re.compile(r'[+-]?(?:\d{1,3}(?:\.\d{3})+|\d+)(?:,\d+)?')
CODE = re.compile(r'[+-]?0\d+')
CLOCK = r'(?:[T ]\d{1,2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?: ?(?:Z|[AaPp][Mm]|[+-]\d{2}:?\d{2}))?)?'
DATES = {
    'ymd': (re.compile(r'(\d{4})[-/.](\d{1,2})[-/.](\d{1,2})' + CLOCK), (1, 2, 3)),
    'dmy.': (re.compile(r'(\d{1,2})[.-](\d{1,2})[.-](\d{4})' + CLOCK), (3, 2, 1)),
    'mdy/': (re.compile(r'(\d{1,2})/(\d{1,2})/(\d{4})' + CLOCK), (3, 1, 2)),
    'dmy/': (re.compile(r'(\d{1,2})/(\d{1,2})/(\d{4})' + CLOCK), (3, 2, 1)),
    'compact': (re.compile(r'((?:19|20)\d{2})(\d{2})(\d{2})'), (1, 2, 3)),
}

def is_missing(text):
    return text.strip().casefold() in MISSING

def bare(text):
    return text.strip().strip('\u00a0$\u20ac\u00a3%').strip().replace('\u2212', '-').replace('\u00a0', '')

def to_number(text, style):
    text = bare(text)
    if style == 'comma':
        if not COMMA.fullmatch(text):
            return None
        value = float(text.replace('.', '').replace(',', '.'))
    elif PLAIN.fullmatch(text):
        value = float(text)
    elif GROUPED.fullmatch(text):
        value = float(text.replace(',', ''))
    else:
        return None
    # Squares of larger ones leave the range of a float.
    return value if abs(value) < 1e150 else None

def to_date(text, style):
    pattern, order = DATES[style]
    found = pattern.fullmatch(text.strip())
    if not found:
        return None
    try:
        return datetime.date(*(int(found.group(index)) for index in order))
    except ValueError:
        return None

def decode(data):
    for mark, name in ((b'\xef\xbb\xbf', 'utf-8-sig'), (b'\xff\xfe', 'utf-16'), (b'\xfe\xff', 'utf-16')):
        if data.startswith(mark):
            return data.decode(name, 'replace'), name
    try:
        return data.decode('utf-8'), 'utf-8'
    except UnicodeDecodeError:
        return data.decode('cp1252', 'replace'), 'cp1252'

def read_records(text, separator):
    records = csv.reader(io.StringIO(text, newline=''), delimiter=separator)
    return [record for record in records if any(field.strip() for field in record)]

def guess_separator(text):
    best, best_score = ',', (0, 0)
    for separator in ',;\t|':
        widths = collections.Counter(len(record) for record in read_records(text[:65536], separator)[:200])
        if not widths:
            continue
        width, count = max(widths.items(), key=lambda item: (item[1], item[0]))
        score = (round(count / sum(widths.values()), 2), width)
        if width > 1 and score > best_score:
            best, best_score = separator, score
    return best

def load(path, separator=None):
    with open(path, 'rb') as file:
        text, encoding = decode(file.read())
    separator = separator or guess_separator(text)
    records = read_records(text, separator)
    if not records:
        return {'header': [], 'rows': [], 'separator': separator, 'encoding': encoding, 'ragged': 0, 'named': True}
    first = [field.strip() for field in records[0]]
    named = not all(PLAIN.fullmatch(bare(field)) for field in first if field) or not any(first)
    rows = records[1:] if named else records
    width = max(len(first), collections.Counter(len(row) for row in rows).most_common(1)[0][0] if rows else 0)
    seen = collections.Counter()
    header = []
    for index in range(width):
        name = ' '.join(first[index].split()) if named and index < len(first) else ''
        name = name[:80] or 'column %d' % (index + 1)
        seen[name] += 1
        header.append(name if seen[name] == 1 else '%s (%d)' % (name, seen[name]))
    ragged = sum(len(row) != width for row in rows)
    rows = [(row + [''] * width)[:width] for row in rows]
    return {'header': header, 'rows': rows, 'separator': separator, 'encoding': encoding, 'ragged': ragged, 'named': named}
`
