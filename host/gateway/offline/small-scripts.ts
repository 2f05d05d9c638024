/** Short Python scripts for counting and for sums; each prints its result on a line that begins `ANSWER: `. */
import { answerMark, failureMark } from './csv-report-script.ts'
import type { Intent } from './intents.ts'

type CountIntent = Extract<Intent, { kind: 'count' | 'occurrences' | 'count-files' }>

const walk = `
import csv, fnmatch, io, os, sys

def files(path):
    if os.path.isfile(path):
        yield path
        return
    for folder, names, found in os.walk(path):
        names[:] = sorted(name for name in names if name != '.git')
        for name in sorted(found):
            if os.path.isfile(os.path.join(folder, name)):
                yield os.path.join(folder, name)

def read(path):
    with open(path, 'rb') as file:
        return file.read()

def say(text):
    print(MARK + text)

def fail(text):
    print(FAILURE + text)
    sys.exit(1)

def plural(count, word):
    return '%d %s' % (count, word[:-1] if count == 1 and word.endswith('s') else word)

if not os.path.exists(PATH):
    fail('%s does not exist. Here are: %s' % (PATH, ', '.join(sorted(os.listdir('.'))[:30]) or 'no files'))
`

const bodies = {
  count: String.raw`
if os.path.isdir(PATH):
    fail('%s is a folder, not a file.' % PATH)
data = read(PATH)
text = data.decode('utf-8', 'replace')
if UNIT == 'lines':
    count = data.count(b'\n') + (1 if data and not data.endswith(b'\n') else 0)
elif UNIT == 'rows':
    records = [record for record in csv.reader(io.StringIO(text.lstrip('\ufeff'), newline='')) if record]
    count = max(0, len(records) - 1)
elif UNIT == 'words':
    count = len(text.split())
elif UNIT == 'bytes':
    count = len(data)
else:
    count = len(text)
say('%s has %s%s.' % (PATH, plural(count, UNIT), ' below its header' if UNIT == 'rows' else ''))
`,
  occurrences: `
total, places = 0, []
for path in files(PATH):
    count = read(path).count(TEXT.encode('utf-8', 'surrogateescape'))
    total += count
    if count:
        places.append('%s (%d)' % (os.path.normpath(path), count))
say('%s found in %s%s' % (plural(total, 'occurrences'), plural(len(places), 'files'), ': ' + ', '.join(places[:50]) if places else '.'))
`,
  'count-files': `
found = [path for path in files(PATH) if fnmatch.fnmatch(os.path.basename(path), PATTERN)]
named = '' if PATTERN == '*' else ' named ' + PATTERN
say('%s%s in %s (folders named .git left out).' % (plural(len(found), 'files'), named, 'the workspace' if PATH == '.' else PATH))
`,
}

export function writeCountScript(intent: CountIntent): string {
  const constants = [
    `MARK = ${JSON.stringify(answerMark)}`,
    `FAILURE = ${JSON.stringify(failureMark)}`,
    `PATH = ${JSON.stringify(intent.path)}`,
    ...(intent.kind === 'count' ? [`UNIT = ${JSON.stringify(intent.unit)}`] : []),
    ...(intent.kind === 'occurrences' ? [`TEXT = ${JSON.stringify(intent.text)}`] : []),
    ...(intent.kind === 'count-files' ? [`PATTERN = ${JSON.stringify(intent.pattern)}`] : []),
  ]
  return `${constants.join('\n')}\n${walk.trim()}\n${bodies[intent.kind].trim()}\n`
}

const sum = `
import math
from fractions import Fraction

def total(*numbers):
    return sum(numbers, Fraction(0))

def mean(*numbers):
    return total(*numbers) / len(numbers)

def product(*numbers):
    return math.prod(numbers, start=Fraction(1))

def sqrt(number):
    root = math.isqrt(int(number)) if number == int(number) and number >= 0 else None
    return Fraction(root) if root is not None and root * root == number else math.sqrt(number)

def shown(value):
    if isinstance(value, Fraction):
        if value.denominator == 1:
            return str(value.numerator)
        exact = value.denominator
        for prime in (2, 5):
            while exact % prime == 0:
                exact //= prime
        if exact == 1:
            return ('%.15f' % value).rstrip('0').rstrip('.')
    return 'about %.12g' % float(value)

try:
    print(MARK + SHOWN + ' = ' + shown(RESULT()))
except ZeroDivisionError:
    print(MARK + SHOWN + ' has no result: it divides by zero.')
except (OverflowError, ValueError) as error:
    print(MARK + SHOWN + ' has no result: ' + str(error) + '.')
`

/** @param expression of numbers, operators, sqrt, total, mean and product alone, as `readArithmetic` gives it */
export function writeSumScript(expression: string): string {
  const exact = expression.replaceAll(/\d+(?:\.\d+)?|\.\d+/g, (number) => `Fraction('${number}')`)
  const constants = [
    `MARK = ${JSON.stringify(answerMark)}`,
    `SHOWN = ${JSON.stringify(expression.replaceAll('**', '^'))}`,
    `RESULT = lambda: ${exact}`,
  ]
  return `${constants.join('\n')}\n${sum.trim()}\n`
}
