/** The run of the pictures of the page: a small project, and a model that answers from a script. */
import { setTimeout as sleep } from 'node:timers/promises'
import { type PlainReply, reply } from '../../specs/testing/model-replies.ts'
import type { Script, ServerReply } from '../../specs/testing/model-server.ts'

export const task = 'Add a CSV export of the orders, with tests, and describe it in the README'

export const files: Readonly<Record<string, string>> = {
  'package.json': `${JSON.stringify({ name: 'orders', type: 'module', scripts: { start: 'node src/server.js' } }, null, 2)}\n`,
  'README.md': '# Orders\n\nLists the orders of a shop.\n\n## Start\n\n    npm start\n',
  'src/orders.js': [
    "import { readFile } from 'node:fs/promises'",
    '',
    'export async function readOrders(file) {',
    "  return JSON.parse(await readFile(file, 'utf8'))",
    '}',
    '',
    'export function total(order) {',
    '  let sum = 0',
    '  for (const line of order.lines) sum += line.price * line.count',
    '  return sum',
    '}',
    '',
    'export function openOrders(orders) {',
    "  return orders.filter((order) => order.state === 'open')",
    '}',
    '',
    'export function byCustomer(orders) {',
    '  return Map.groupBy(orders, (order) => order.customer)',
    '}',
    '',
  ].join('\n'),
  'src/old-report.js': '// Replaced by the export.\n',
  'data/orders.json': `${JSON.stringify([{ id: 7, customer: 'Ada', state: 'open', lines: [{ item: 'lamp', price: 40, count: 2 }] }], null, 2)}\n`,
}

const step = (
  id: string,
  title: string,
  needs: readonly string[],
  writes: readonly string[],
  more: object = {},
) => ({
  ...{ id, title, instructions: title, needs, writes },
  ...more,
})

const plan = {
  goal: 'Orders can be exported as CSV, with tests and documentation',
  steps: [
    step('read', 'Read how orders are stored', [], []),
    step('export', 'Write the CSV export', ['read'], ['src/orders.js', 'src/csv.js', 'src/old-report.js']),
    step('tests', 'Write tests for the export', ['export'], ['test/csv.test.js', 'package.json'], {
      kind: 'agent',
    }),
    step('docs', 'Describe the export in the README', ['export'], ['README.md']),
    step('check', 'Run everything once', ['tests', 'docs'], []),
  ],
}

const csv = `/** Orders as CSV (RFC 4180): a line for each order, quotes only where a value needs them. */
export function toCsv(orders) {
  const rows = orders.map(({ id, customer, state, sum }) => [id, customer, state, sum])
  return [['id', 'customer', 'state', 'total'], ...rows].map((row) => row.map(cell).join(',')).join('\\r\\n')
}

function cell(value) {
  const text = String(value)
  return /[",\\r\\n]/.test(text) ? \`"\${text.replaceAll('"', '""')}"\` : text
}
`
const test = `import assert from 'node:assert/strict'
import { test } from 'node:test'
import { toCsv } from '../src/csv.js'

test('quotes what needs it', () => {
  assert.equal(toCsv([{ id: 1, customer: 'Ada, Inc.', state: 'open', sum: 80 }]).split('\\r\\n')[1], '1,"Ada, Inc.",open,80')
})
`

const call = (name: string, input: object) => ({ name, arguments: input })
const turns: Readonly<Record<string, readonly PlainReply[]>> = {
  read: [
    {
      text: 'First the code that reads orders.',
      calls: [call('read_file', { path: 'src/orders.js' }), call('read_file', { path: 'data/orders.json' })],
    },
    {
      text: 'Orders are JSON with lines of price and count. `total` already adds them up, so the export can use it.',
    },
  ],
  export: [
    {
      reasoning: 'A module of its own keeps the quoting in one place.',
      calls: [call('write_file', { path: 'src/csv.js', content: csv })],
    },
    {
      calls: [
        call('edit_file', {
          path: 'src/orders.js',
          oldText: "import { readFile } from 'node:fs/promises'",
          newText: "import { readFile } from 'node:fs/promises'\nimport { toCsv } from './csv.js'",
        }),
        call('edit_file', {
          path: 'src/orders.js',
          oldText: 'export function byCustomer(orders) {',
          newText:
            'export function exportOrders(orders) {\n  return toCsv(orders.map((order) => ({ ...order, sum: total(order) })))\n}\n\nexport function byCustomer(orders) {',
        }),
      ],
    },
    { calls: [call('delete_file', { path: 'src/old-report.js' })] },
    { text: 'The export is in src/csv.js; src/orders.js has exportOrders.' },
  ],
  tests: [
    { calls: [call('write_file', { path: 'test/csv.test.js', content: test })] },
    {
      calls: [
        call('run_bash', {
          command:
            'sed -i \'s|"start"|"test": "node --test",\\n    "start"|\' package.json && cat package.json',
        }),
      ],
    },
    { text: 'One test of the quoting, and npm test runs it.' },
  ],
  docs: [
    {
      calls: [
        call('run_bash', {
          command:
            'printf \'\\n## Export\\n\\n    node -e "import(\\\\"./src/orders.js\\\\")"\\n\\nValues with commas are quoted.\\n\' >> README.md && tail -4 README.md',
        }),
      ],
    },
    { text: 'The README describes the export.' },
  ],
  check: [
    {
      text: 'Now all tests, and whether the registry has a newer Node.',
      calls: [
        call('run_bash', {
          command: 'node --test 2>&1 | tail -8; curl -sS https://registry.npmjs.org/ | head -c 80',
        }),
      ],
    },
    { text: 'Orders can be exported as CSV. The tests pass. The README says how to use it.' },
  ],
}

/** Pauses between pieces, so that the pictures of a run at work have one. */
export function script(pauseMs: number): Script {
  const taken = new Map<string, number>()
  return async ({ messages }): Promise<ServerReply> => {
    const user = messages.find(({ role }) => role === 'user')?.content ?? ''
    const [, instructions = ''] = /<instructions>\n([\s\S]*?)\n<\/instructions>/.exec(user) ?? []
    const id = plan.steps.find(({ title }) => instructions.includes(title))?.id
    if (id === undefined)
      return reply({
        calls: [call('submit_plan', plan)],
        usage: { prompt_tokens: 3_210, completion_tokens: 420 },
      })
    const turn = taken.get(id) ?? 0
    taken.set(id, turn + 1)
    await sleep(pauseMs)
    const chosen = turns[id]?.[turn] ?? { text: 'Done.' }
    return reply({
      ...chosen,
      usage: { prompt_tokens: 4_000 + 900 * turn, completion_tokens: 160 + 70 * turn },
    })
  }
}
