/** The sum, average, largest and smallest number of a column of a CSV file, exactly. */

/** `shown(value)`: a number as people write it. Needs `Fraction`. */
export const shownNumber = `def grouped(digits):
    # 1234 is written without a comma as often as with one.
    return '{:,}'.format(int(digits)) if len(digits.lstrip('-')) > 4 else digits

def shown(value):
    if isinstance(value, Fraction):
        if value.denominator == 1:
            return grouped(str(value.numerator))
        rest, powers = value.denominator, {2: 0, 5: 0}
        for prime in powers:
            while rest % prime == 0:
                rest //= prime
                powers[prime] += 1
        places = max(powers.values())
        if rest == 1 and places <= 40:
            # Every digit of it: a float would show digits that are not the number's.
            digits = str(abs(value.numerator) * 10**places // value.denominator).rjust(places + 1, '0')
            return ('-' if value < 0 else '') + grouped(digits[:-places]) + '.' + digits[-places:]
    return 'about %.12g' % float(value)`

/** Reads the numbers of a column: `12`, `-3.5` and `1,234.50` are numbers, and an empty field is left out. */
const numbers = String.raw`
from fractions import Fraction

${shownNumber}

rows = [row for row in csv.reader(io.StringIO(text_of(PATH).lstrip('\ufeff'), newline='')) if row]
if not rows:
    fail('%s is empty.' % PATH)
header = [field.strip() for field in rows[0]]
found = [at for at, field in enumerate(header) if field.lower() == TEXT.lower()]
if len(found) != 1:
    fail('%s has %s named %s. Its columns: %s' % (PATH, 'several columns' if found else 'no column', TEXT, ', '.join(header[:30])))
numbers, missing = [], 0
for place, row in enumerate(rows[1:], 2):
    text = row[found[0]].strip() if found[0] < len(row) else ''
    if not text:
        missing += 1
    elif re.fullmatch(r'[+-]?(\d+|\d{1,3}(,\d{3})+)(\.\d+)?', text, re.A):
        numbers.append(Fraction(text.replace(',', '')))
    else:
        fail('%s in row %d of %s is not a number.' % (json.dumps(text[:60], ensure_ascii=False), place, PATH))
if not numbers:
    fail('the column %s of %s has no numbers.' % (TEXT, PATH))

def say_figure(name, value):
    left_out = '; %s left out' % plural(missing, 'empty fields') if missing else ''
    say('The %s of %s in %s is %s (%s%s).' % (name, header[found[0]], PATH, shown(value), plural(len(numbers), 'numbers'), left_out))
`

/** Rows for the table of chores. */
export const columnChores = {
  'sum-column': {
    sentence: 'Add up the column {text} of {path}.',
    code: `${numbers}say_figure('sum', sum(numbers))`,
  },
  'average-column': {
    sentence: 'Average the column {text} of {path}.',
    code: `${numbers}say_figure('average', sum(numbers) / len(numbers))`,
  },
  'largest-in-column': {
    sentence: 'Find the largest number in the column {text} of {path}.',
    code: `${numbers}say_figure('largest number', max(numbers))`,
  },
  'smallest-in-column': {
    sentence: 'Find the smallest number in the column {text} of {path}.',
    code: `${numbers}say_figure('smallest number', min(numbers))`,
  },
} as const
