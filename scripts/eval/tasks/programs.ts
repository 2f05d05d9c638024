/** Programs that are written or changed as a whole: features, refactorings, tests in JavaScript. */
import { allOf, type EvalTask, filesAre, nodeTest, pythonTest } from '../task.ts'

const shapes = `def area(shape):
    if shape['kind'] == 'circle':
        return 3 * shape['r'] ** 2
    elif shape['kind'] == 'square':
        return shape['a'] ** 2
    else:
        raise ValueError(shape['kind'])
`
const clock = `export const isLate = (hour) => hour >= 18 || hour < 6
`
const report = `def report(rows):
    text = ''
    for row in rows:
        text += '| ' + row['name'].ljust(10) + ' | ' + str(row['count']).rjust(5) + ' |\\n'
    return text


def summary(rows):
    text = ''
    for row in rows:
        text += '| ' + row['name'].ljust(10) + ' | ' + str(row['total']).rjust(5) + ' |\\n'
    return text
`

export const programTasks: readonly EvalTask[] = [
  {
    name: 'python-new-kind',
    tags: ['python', 'refactor'],
    difficulty: 'easy',
    prompt:
      "Add the kind 'rectangle' (a times b) to area in shapes.py, and replace the chain of ifs by the dict AREAS from kind to function. Unknown kinds raise ValueError as before.",
    files: { 'shapes.py': shapes },
    check: pythonTest(`
import shapes
assert set(shapes.AREAS) == {'circle', 'square', 'rectangle'}
assert shapes.area({'kind': 'rectangle', 'a': 2, 'b': 5}) == 10
assert shapes.area({'kind': 'circle', 'r': 2}) == 12 and shapes.area({'kind': 'square', 'a': 3}) == 9
shapes.AREAS['dot'] = lambda shape: 0
assert shapes.area({'kind': 'dot'}) == 0
try:
    shapes.area({'kind': 'line'})
except ValueError:
    pass
else:
    raise AssertionError('no error')`),
    solution: {
      'shapes.py': `AREAS = {
    'circle': lambda shape: 3 * shape['r'] ** 2,
    'square': lambda shape: shape['a'] ** 2,
    'rectangle': lambda shape: shape['a'] * shape['b'],
}


def area(shape):
    if shape['kind'] not in AREAS:
        raise ValueError(shape['kind'])
    return AREAS[shape['kind']](shape)
`,
    },
  },
  {
    name: 'python-repeated-code',
    tags: ['python', 'refactor'],
    difficulty: 'medium',
    prompt:
      'report and summary in report.py repeat each other. Move what they share into the function table(rows, column), which both call. Their results stay the same.',
    files: { 'report.py': report },
    check: pythonTest(`
import inspect, report
rows = [{'name': 'ab', 'count': 3, 'total': 12}, {'name': 'c', 'count': 4, 'total': 5}]
assert report.report(rows) == '| ab         |     3 |\\n| c          |     4 |\\n'
assert report.summary(rows) == '| ab         |    12 |\\n| c          |     5 |\\n'
assert report.table(rows, 'total') == report.summary(rows)
assert inspect.getsource(report).count('ljust') == 1
report.table = lambda rows, column: column
assert report.report(rows) == 'count' and report.summary(rows) == 'total'`),
    solution: {
      'report.py': `def table(rows, column):
    return ''.join('| ' + row['name'].ljust(10) + ' | ' + str(row[column]).rjust(5) + ' |\\n' for row in rows)


def report(rows):
    return table(rows, 'count')


def summary(rows):
    return table(rows, 'total')
`,
    },
  },
  {
    name: 'node-catch-mutants',
    tags: ['node', 'tests'],
    difficulty: 'medium',
    prompt:
      'Write clock.test.mjs with node:test for clock.mjs, without changing clock.mjs. It must pass, and must fail for each change of a comparison or a number by one. `node --test clock.test.mjs` runs it.',
    files: { 'clock.mjs': clock },
    check: allOf(
      filesAre({ 'clock.mjs': clock }),
      nodeTest(`
import { spawnSync } from 'node:child_process'
import { copyFileSync, mkdtempSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
const passes = (source) => {
  const folder = mkdtempSync(tmpdir() + '/mutant-')
  copyFileSync('clock.test.mjs', folder + '/clock.test.mjs')
  writeFileSync(folder + '/clock.mjs', source)
  return spawnSync(process.execPath, ['--test', 'clock.test.mjs'], { cwd: folder, env: { PATH: process.env.PATH } }).status === 0
}
const source = 'export const isLate = (hour) => hour >= 18 || hour < 6\\n'
assert.ok(passes(source))
for (const [old, changed] of [['>= 18', '> 18'], ['>= 18', '>= 17'], ['< 6', '<= 6'], ['< 6', '< 5']])
  assert.ok(!passes(source.replace(old, changed)), changed)`),
    ),
    solution: {
      'clock.test.mjs': `import assert from 'node:assert/strict'
import { test } from 'node:test'
import { isLate } from './clock.mjs'

test('late from 18 to 6', () => {
  for (const hour of [18, 23, 0, 5]) assert.equal(isLate(hour), true)
  for (const hour of [6, 12, 17]) assert.equal(isLate(hour), false)
})
`,
    },
  },
  {
    name: 'node-command-line',
    tags: ['node'],
    difficulty: 'medium',
    prompt:
      'Write sum.mjs: `node sum.mjs A B …` prints the sum of the whole numbers. Without numbers it prints 0. For anything that is no whole number it prints nothing on standard output, a message on standard error, and exits with 2.',
    files: { 'README.md': 'A small command.\n' },
    check: nodeTest(`
import { spawnSync } from 'node:child_process'
const run = (...args) => {
  const { status, stdout, stderr } = spawnSync(process.execPath, ['sum.mjs', ...args], { encoding: 'utf8' })
  return [status, stdout.trim(), stderr !== '']
}
assert.deepEqual(run('1', '-2', '30'), [0, '29', false])
assert.deepEqual(run(), [0, '0', false])
for (const bad of ['x', '1.5', '', '2x']) assert.deepEqual(run('1', bad), [2, '', true])`),
    solution: {
      'sum.mjs': `const args = process.argv.slice(2)
const bad = args.find((text) => !/^[+-]?[0-9]+$/.test(text))
if (bad === undefined) console.log(args.reduce((sum, text) => sum + Number(text), 0))
else {
  console.error('no whole number: ' + bad)
  process.exitCode = 2
}
`,
    },
  },
]
