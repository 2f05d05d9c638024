/** Programs in Python: repairs, speed, tests. */
import { allOf, type EvalTask, filesAre, pythonTest } from '../task.ts'

const pages = `def page_of(items, number, size):
    """Items of page \`number\`, counted from 1."""
    start = number * size
    return items[start:start + size]


def page_count(items, size):
    return len(items) // size
`
const durations = `import re

UNITS = {'s': 1, 'm': 60, 'h': 3600}


def parse_duration(text):
    """Seconds of a text like 1h30m or 45s."""
    match = re.match(r'(\\d+)([smh])', text)
    return int(match.group(1)) * UNITS[match.group(2)]
`
const cache = `class Cache:
    """Keeps the entries that were used last."""

    def __init__(self, size):
        self.size = size
        self.entries = {}

    def get(self, key):
        return self.entries.get(key)

    def put(self, key, value):
        if len(self.entries) >= self.size:
            self.entries.pop(next(iter(self.entries)))
        self.entries[key] = value
`
const pairs = `def count_pairs(numbers, total):
    """How many pairs of positions i < j have numbers[i] + numbers[j] == total."""
    found = 0
    for i in range(len(numbers)):
        for j in range(i + 1, len(numbers)):
            if numbers[i] + numbers[j] == total:
                found += 1
    return found
`
const defaults = `def add_tag(tag, tags=[]):
    tags.append(tag)
    return tags


def make_counters(names):
    return {name: lambda: name for name in names}
`
const prices = `def total(lines):
    """Cents of all lines: (price in cents, count, discount in percent)."""
    return sum(price * count * (100 - discount) // 100 for price, count, discount in lines)


def ship_free(lines):
    return total(lines) >= 5000
`

export const pythonTasks: readonly EvalTask[] = [
  {
    name: 'python-pages',
    tags: ['python'],
    difficulty: 'easy',
    prompt:
      'pages.py has two bugs: page 1 leaves out the first items, and the last, shorter page is not counted. Fix both.',
    files: { 'pages.py': pages },
    check: pythonTest(`
from pages import page_of, page_count
items = list(range(10))
assert page_of(items, 1, 4) == [0, 1, 2, 3]
assert page_of(items, 3, 4) == [8, 9]
assert page_count(items, 4) == 3 and page_count(items, 5) == 2 and page_count([], 5) == 0`),
    solution: {
      'pages.py': pages
        .replace('number * size', '(number - 1) * size')
        .replace('len(items) // size', '-(-len(items) // size)'),
    },
  },
  {
    name: 'python-durations',
    tags: ['python'],
    difficulty: 'medium',
    prompt:
      'parse_duration in durations.py has to add up all parts (1h30m is 5400) and raise ValueError for a text that is not made of such parts only, also for the empty text. Fix it.',
    files: { 'durations.py': durations },
    check: pythonTest(`
from durations import parse_duration
assert parse_duration('1h30m') == 5400 and parse_duration('45s') == 45 and parse_duration('2h3m4s') == 7384
for bad in ['', '5', 'h', '5x', '1h 3m', '1h!']:
    try:
        parse_duration(bad)
    except ValueError:
        continue
    raise AssertionError(bad)`),
    solution: {
      'durations.py': `import re

UNITS = {'s': 1, 'm': 60, 'h': 3600}


def parse_duration(text):
    """Seconds of a text like 1h30m or 45s."""
    if not re.fullmatch(r'(\\d+[smh])+', text):
        raise ValueError('no duration: ' + repr(text))
    return sum(int(count) * UNITS[unit] for count, unit in re.findall(r'(\\d+)([smh])', text))
`,
    },
  },
  {
    name: 'python-cache',
    tags: ['python'],
    difficulty: 'medium',
    prompt:
      'The class in cache.py should drop the entry that was used least recently. It drops the oldest one instead, and also drops one when an existing key gets a new value. Fix it.',
    files: { 'cache.py': cache },
    check: pythonTest(`
from cache import Cache
c = Cache(2)
c.put('a', 1); c.put('b', 2)
assert c.get('a') == 1
c.put('c', 3)
assert c.get('b') is None and c.get('a') == 1 and c.get('c') == 3
d = Cache(2)
d.put('a', 1); d.put('b', 2); d.put('b', 4)
assert d.get('a') == 1 and d.get('b') == 4`),
    solution: {
      'cache.py': `class Cache:
    """Keeps the entries that were used last."""

    def __init__(self, size):
        self.size = size
        self.entries = {}

    def get(self, key):
        if key not in self.entries:
            return None
        self.entries[key] = self.entries.pop(key)
        return self.entries[key]

    def put(self, key, value):
        self.entries.pop(key, None)
        if len(self.entries) >= self.size:
            self.entries.pop(next(iter(self.entries)))
        self.entries[key] = value
`,
    },
  },
  {
    name: 'python-fast-pairs',
    tags: ['python'],
    difficulty: 'medium',
    prompt:
      'count_pairs in pairs.py is too slow for long lists. Make it need a number of additions and subtractions that grows linearly with the list, with the same results.',
    files: { 'pairs.py': pairs },
    check: pythonTest(`
from pairs import count_pairs
operations = 0
class N(int):
    def __add__(self, other):
        global operations
        operations += 1
        return N(int(self) + int(other))
    __radd__ = __add__
    def __rsub__(self, other):
        global operations
        operations += 1
        return N(int(other) - int(self))
    def __sub__(self, other):
        global operations
        operations += 1
        return N(int(self) - int(other))
assert count_pairs([1, 5, 3, 3, 3], 6) == 4 and count_pairs([], 0) == 0 and count_pairs([2], 4) == 0
numbers = [N(i % 50) for i in range(600)]
expected = sum(1 for i in range(600) for j in range(i + 1, 600) if i % 50 + j % 50 == 49)
assert count_pairs(numbers, 49) == expected
assert operations <= 6 * 600, operations`),
    solution: {
      'pairs.py': `def count_pairs(numbers, total):
    """How many pairs of positions i < j have numbers[i] + numbers[j] == total."""
    found = 0
    seen = {}
    for number in numbers:
        found += seen.get(total - number, 0)
        seen[number] = seen.get(number, 0) + 1
    return found
`,
    },
  },
  {
    name: 'python-shared-state',
    tags: ['python'],
    difficulty: 'easy',
    prompt:
      'Both functions in helpers.py share state between calls that should be separate. Fix them; the way they are called stays the same.',
    files: { 'helpers.py': defaults },
    check: pythonTest(`
from helpers import add_tag, make_counters
assert add_tag('a') == ['a'] and add_tag('b') == ['b']
mine = ['x']
assert add_tag('y', mine) is mine and mine == ['x', 'y']
made = make_counters(['p', 'q'])
assert made['p']() == 'p' and made['q']() == 'q'`),
    solution: {
      'helpers.py': `def add_tag(tag, tags=None):
    tags = [] if tags is None else tags
    tags.append(tag)
    return tags


def make_counters(names):
    return {name: lambda name=name: name for name in names}
`,
    },
  },
  {
    name: 'python-catch-mutants',
    tags: ['python', 'tests'],
    difficulty: 'hard',
    prompt:
      'Write test_prices.py with unittest for prices.py, without changing prices.py. Your tests must pass, and must fail for each small mistake one could make in it, such as a wrong comparison, a wrong rounding or a left out factor. `python3 -m unittest test_prices` runs them.',
    files: { 'prices.py': prices },
    check: allOf(
      filesAre({ 'prices.py': prices }),
      pythonTest(`
import os, subprocess, tempfile, shutil
source = open('prices.py').read()
def passes(text):
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy('test_prices.py', folder)
        open(os.path.join(folder, 'prices.py'), 'w').write(text)
        done = subprocess.run([sys.executable, '-B', '-m', 'unittest', 'test_prices'], cwd=folder, capture_output=True)
        return done.returncode == 0
assert passes(source)
for old, new in [('>= 5000', '> 5000'), ('// 100', '/ 100'), (' * count', ''), ('100 - discount', '100 + discount'), ('>= 5000', '>= 4999')]:
    assert source.count(old) == 1
    assert not passes(source.replace(old, new)), new`),
    ),
    solution: {
      'test_prices.py': `import unittest
from prices import ship_free, total


class Prices(unittest.TestCase):
    def test_total(self):
        self.assertEqual(total([]), 0)
        self.assertEqual(total([(199, 3, 10)]), 537)
        self.assertEqual(total([(100, 2, 0), (50, 1, 50)]), 225)

    def test_free(self):
        self.assertTrue(ship_free([(5000, 1, 0)]))
        self.assertFalse(ship_free([(4999, 1, 0)]))
`,
    },
  },
]
