/** The offline model's first look at a CSV: a Python script that prints, as one line of JSON, what each column holds. */
import { csvReaderScript } from './csv-reader-script.ts'

/** The line of the output that carries the profile begins so. */
export const profileMark = 'PROFILE '
/** Columns that a profile describes; the report says when there are more. */
export const profileMaxColumns = 120

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
