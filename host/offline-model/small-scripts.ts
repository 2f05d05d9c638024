/** Parses sums, and writes the short Python scripts of the offline model; each prints its result after `ANSWER: `. */
import { showArithmetic } from './arithmetic.ts'
import { chores, patternsOf } from './chores.ts'
import { shownNumber } from './column-figures.ts'
import type { UserIntent } from './intents.ts'
import { answerMark, failureMark } from './reply.ts'

type CountIntent = Extract<UserIntent, { kind: 'count' | 'count-each' | 'occurrences' | 'count-files' }>
type ChoreIntent = Extract<UserIntent, { kind: 'chore' }>

/** What all of them share; folders of installed packages are no part of the project. */
const shared = String.raw`
import collections, csv, datetime, fnmatch, hashlib, importlib.util, io, json, os, re, shutil, subprocess, sys, zipfile

SKIPPED = {'.git', 'node_modules', '.venv', 'venv', '__pycache__'}

def files(path):
    if os.path.isfile(path):
        yield path
        return
    for folder, names, found in os.walk(path):
        names[:] = sorted(name for name in names if name not in SKIPPED)
        for name in sorted(found):
            if os.path.isfile(os.path.join(folder, name)):
                yield os.path.join(folder, name)

def matches(path):
    return any(fnmatch.fnmatch(os.path.basename(path), pattern) for pattern in PATTERNS)

def read(path):
    with open(path, 'rb') as file:
        return file.read()

def say(text):
    for line in text.split('\n'):
        print(MARK + line)

def fail(text):
    print(FAILURE + text)
    sys.exit(1)

def plural(count, word):
    return '{:,} {}'.format(count, word[:-1] if count == 1 and word.endswith('s') else word)

if not os.path.exists(PATH):
    fail('%s does not exist. Here are: %s' % (PATH, ', '.join(sorted(os.listdir('.'))[:30]) or 'no files'))
`

/** What the scripts of chores share besides. */
const forChores = String.raw`
def listed(lines):
    lines = list(lines)
    for line in lines[:200]:
        say('- ' + line)
    if len(lines) > 200:
        say('- and %s more' % plural(len(lines) - 200, 'lines'))

def found_files():
    found = [os.path.normpath(path) for path in files(PATH) if matches(path)]
    if not found:
        fail('no file in %s is named %s.' % ('the workspace' if PATH == '.' else PATH, ' or '.join(PATTERNS)))
    return found

def text_of(path):
    if os.path.isdir(path):
        fail('%s is a folder, not a file.' % path)
    try:
        return read(path).decode('utf-8')
    except UnicodeDecodeError:
        fail('%s is not text in UTF-8.' % path)

def write(path, text):
    with open(path, 'w', encoding='utf-8', newline='') as file:
        file.write(text)

def parsed(path):
    try:
        return json.loads(text_of(path))
    except ValueError as error:
        fail('%s is not valid JSON: %s.' % (path, error))

def has(name):
    return os.path.isfile(name)

def git(*words):
    ran = subprocess.run(('git', '-c', 'safe.directory=*', '-c', 'core.quotePath=false', '--no-pager') + words, capture_output=True, text=True, errors='replace')
    if ran.returncode != 0:
        fail('git %s failed: %s' % (words[0], ' '.join((ran.stderr or ran.stdout).split())))
    return ran.stdout.rstrip()

package = parsed('package.json') if has('package.json') else {}
scripts = package.get('scripts', {})
targets = re.findall(r'^([\w-]+):', text_of('Makefile'), re.M) if has('Makefile') else []
tests = [path for path in files('.') if re.fullmatch(r'test_.*\.py|.*_test\.py', os.path.basename(path))]
`

/** How many UNIT a file has. */
const countOne = String.raw`
def count_of(path):
    data = read(path)
    text = data.decode('utf-8', 'replace')
    if UNIT == 'lines':
        return data.count(b'\n') + (1 if data and not data.endswith(b'\n') else 0)
    if UNIT == 'rows':
        records = [record for record in csv.reader(io.StringIO(text.lstrip('\ufeff'), newline='')) if record]
        return max(0, len(records) - 1)
    if UNIT == 'words':
        return len(text.split())
    return len(data) if UNIT == 'bytes' else len(text)

`

const bodies = {
  count: `${countOne}
if os.path.isdir(PATH):
    fail('%s is a folder, not a file.' % PATH)
say('%s has %s%s.' % (PATH, plural(count_of(PATH), UNIT), ' below its header' if UNIT == 'rows' else ''))
`,
  'count-each': `${countOne}
counts = [(os.path.normpath(path), count_of(path)) for path in files(PATH) if matches(path)]
total = sum(count for path, count in counts)
say('%s in %s (.git and installed packages left out).' % (plural(total, UNIT), plural(len(counts), 'files')))
for path, count in counts[:200]:
    say('- %s: %s' % (path, plural(count, UNIT)))
if len(counts) > 200:
    say('- and %s more' % plural(len(counts) - 200, 'files'))
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
found = [path for path in files(PATH) if matches(path)]
named = '' if PATTERNS == ['*'] else ' named ' + ' or '.join(PATTERNS)
say('%s%s in %s (.git and installed packages left out).' % (plural(len(found), 'files'), named, 'the workspace' if PATH == '.' else PATH))
`,
}

export function writeCountScript(intent: CountIntent): string {
  return writeScript(intent, bodies[intent.kind])
}

export function writeChoreScript(intent: ChoreIntent): string {
  return writeScript(intent, forChores + chores[intent.chore].code)
}

function writeScript(intent: CountIntent | ChoreIntent, body: string): string {
  const given = { path: '.', text: '', to: '', unit: '', pattern: '*', ...intent }
  const constants = [
    `MARK = ${JSON.stringify(answerMark)}`,
    `FAILURE = ${JSON.stringify(failureMark)}`,
    `PATH = ${JSON.stringify(given.path)}`,
    `UNIT = ${JSON.stringify(given.unit)}`,
    `TEXT = ${JSON.stringify(given.text)}`,
    `TO = ${JSON.stringify(given.to)}`,
    `PATTERNS = ${JSON.stringify(patternsOf(given.pattern))}`,
  ]
  return `${constants.join('\n')}\n${shared.trim()}\n${body.trim()}\n`
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

${shownNumber}

try:
    print(MARK + SHOWN + ' = ' + shown(RESULT()))
except ZeroDivisionError:
    print(FAILURE + SHOWN + ' has no result: it divides by zero.')
except (OverflowError, ValueError) as error:
    print(FAILURE + SHOWN + ' has no result: ' + str(error) + '.')
`

/** @param expression a result of `readArithmetic` */
export function writeSumScript(expression: string): string {
  const exact = expression.replaceAll(/\d+(?:\.\d+)?|\.\d+/g, (number) => `Fraction('${number}')`)
  const constants = [
    `FAILURE = ${JSON.stringify(failureMark)}`,
    `MARK = ${JSON.stringify(answerMark)}`,
    `SHOWN = ${JSON.stringify(showArithmetic(expression))}`,
    `RESULT = lambda: ${exact}`,
  ]
  return `${constants.join('\n')}\n${sum.trim()}\n`
}
