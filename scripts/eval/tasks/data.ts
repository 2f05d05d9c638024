/** Tables, logs and databases with exact answers. The answers are calculated here, apart from any program of a run. */
import { allOf, type EvalTask, filesAre, jsonIs, pythonTest, seededNumbers } from '../task.ts'

const regions = ['north', 'south', 'east', 'west']
const nextSale = seededNumbers(11)
const sales = Array.from({ length: 400 }, (_, index) => ({
  id: index + 1,
  region: regions[nextSale(4)] ?? '',
  month: 1 + nextSale(12),
  cents: 100 + nextSale(90_000),
  isReturned: nextSale(10) === 0,
}))
const salesCsv = `id,region,month,cents,returned\n${sales
  .map((sale) => `${sale.id},${sale.region},${sale.month},${sale.cents},${sale.isReturned ? 'yes' : 'no'}`)
  .join('\n')}\n`
const kept = sales.filter((sale) => !sale.isReturned)
const sumOf = (rows: readonly { readonly cents: number }[]) => rows.reduce((sum, { cents }) => sum + cents, 0)
const byRegion = Object.fromEntries(
  regions.map((region) => [region, sumOf(kept.filter((sale) => sale.region === region))]),
)

const paths = ['/', '/login', '/cart', '/search', '/api/items']
const nextRequest = seededNumbers(23)
const requests = Array.from({ length: 600 }, (_, index) => ({
  second: index * 3,
  client: `10.0.0.${1 + nextRequest(12)}`,
  path: paths[nextRequest(5)] ?? '',
  status: [200, 200, 200, 304, 404, 500][nextRequest(6)] ?? 200,
  ms: 1 + nextRequest(900),
}))
const timeOf = (second: number) => new Date(Date.UTC(2026, 2, 1, 8) + second * 1_000).toISOString()
const accessLog = requests
  .map(
    ({ second, client, path, status, ms }) => `${timeOf(second)} ${client} GET ${path} ${status} ${ms}ms\n`,
  )
  .join('')
const failures = requests.filter(({ status }) => status === 500)
const failuresByClient = Map.groupBy(failures, ({ client }) => client)
const mostFailures = Math.max(...[...failuresByClient.values()].map((group) => group.length))
const worstClients = [...failuresByClient]
  .filter(([, group]) => group.length === mostFailures)
  .map(([client]) => client)
  .sort()
const slowestPath = paths
  .map((path) => ({ path, times: requests.filter((request) => request.path === path).map(({ ms }) => ms) }))
  .map(({ path, times }) => ({ path, mean: times.reduce((a, b) => a + b, 0) / times.length }))
  .reduce((slowest, other) => (other.mean > slowest.mean ? other : slowest)).path

const nextOrder = seededNumbers(31)
const customers = Array.from({ length: 12 }, (_, index) => ({ id: index + 1, name: `customer ${index + 1}` }))
const orders = Array.from({ length: 150 }, (_, index) => ({
  id: index + 1,
  // Customers 11 and 12 have none.
  customer: 1 + nextOrder(10),
  cents: 500 + nextOrder(20_000),
}))
const databaseSql = [
  'begin;',
  'create table customers (id integer primary key, name text not null);',
  'create table orders (id integer primary key, customer integer not null, cents integer not null);',
  ...customers.map(({ id, name }) => `insert into customers values (${id}, '${name}');`),
  ...orders.map(({ id, customer, cents }) => `insert into orders values (${id}, ${customer}, ${cents});`),
  'commit;',
].join('\n')
const spent = customers
  .map(({ id, name }) => ({ name, cents: sumOf(orders.filter(({ customer }) => customer === id)) }))
  .sort((a, b) => b.cents - a.cents || (a.name < b.name ? -1 : 1))
const loadDatabase = `python3 -c "import sqlite3; sqlite3.connect('shop.db').executescript(open('shop.sql').read())"`

const inventory = {
  sites: [
    {
      name: 'A',
      racks: [
        { id: 'a1', parts: { bolt: 4, nut: 2 } },
        { id: 'a2', parts: { bolt: 1 } },
      ],
    },
    { name: 'B', racks: [{ id: 'b1', parts: { nut: 7, gear: 3 } }] },
    { name: 'C', racks: [] },
  ],
}
const eventLines = Array.from({ length: 80 }, (_, index) =>
  index % 9 === 4 ? '{"user": "broken' : JSON.stringify({ user: `u${index % 7}`, points: index }),
)
const pointsOf = (user: number) =>
  eventLines.reduce((sum, _, index) => (index % 9 !== 4 && index % 7 === user ? sum + index : sum), 0)

const query = 'select name from customers where id not in (select customer from orders)'

export const dataTasks: readonly EvalTask[] = [
  {
    name: 'csv-by-region',
    tags: ['data'],
    difficulty: 'easy',
    prompt:
      'sales.csv has sales. Write totals.json: an object from region to the sum of cents of the sales that were not returned.',
    files: { 'sales.csv': salesCsv },
    check: jsonIs('totals.json', byRegion),
    solution: { 'totals.json': JSON.stringify(byRegion) },
  },
  {
    name: 'csv-median',
    tags: ['data'],
    difficulty: 'easy',
    prompt:
      'Write into median.txt the lower median of cents over all rows of sales.csv: with the values sorted ascending, the one at position 200 of 400, counted from 1. Only the number.',
    files: { 'sales.csv': salesCsv },
    check: filesAre({ 'median.txt': String(sales.map(({ cents }) => cents).sort((a, b) => a - b)[199]) }),
    solution: { 'median.txt': String(sales.map(({ cents }) => cents).sort((a, b) => a - b)[199]) },
  },
  {
    name: 'csv-pivot',
    tags: ['data'],
    difficulty: 'medium',
    prompt:
      'From sales.csv write pivot.csv: the header month,north,south,east,west, then a line for each month 1 to 12 with the number of sales in each region, returned ones included.',
    files: { 'sales.csv': salesCsv },
    check: filesAre({ 'pivot.csv': pivotOf() }),
    solution: { 'pivot.csv': pivotOf() },
  },
  {
    name: 'log-failures',
    tags: ['data', 'text'],
    difficulty: 'easy',
    prompt:
      'access.log has a request in each line: time, client, method, path, status, duration. Write failures.json with {"count": number of requests with status 500, "clients": the clients that had most of them, sorted as text}.',
    files: { 'access.log': accessLog },
    check: jsonIs('failures.json', { count: failures.length, clients: worstClients }),
    solution: { 'failures.json': JSON.stringify({ count: failures.length, clients: worstClients }) },
  },
  {
    name: 'log-slowest-path',
    tags: ['data', 'text'],
    difficulty: 'medium',
    prompt:
      'Which path of access.log has the highest mean duration (last field) over all its requests? Write it into slowest.txt, alone.',
    files: { 'access.log': accessLog },
    check: filesAre({ 'slowest.txt': slowestPath }),
    solution: { 'slowest.txt': slowestPath },
  },
  {
    name: 'log-line-of-large-file',
    tags: ['data', 'text'],
    difficulty: 'easy',
    prompt:
      'audit.log has 20,000 lines. Exactly one says that the door 7 was opened without a badge. Write the number of that line, counted from 1, into line.txt.',
    files: {
      'audit.log': Array.from({ length: 20_000 }, (_, index) =>
        index === 13_579
          ? 'door 7 opened, no badge presented\n'
          : `door ${index % 9} opened with badge ${1_000 + ((index * 37) % 500)}\n`,
      ).join(''),
    },
    check: filesAre({ 'line.txt': '13580' }),
    solution: { 'line.txt': '13580' },
  },
  {
    name: 'json-inventory',
    tags: ['data'],
    difficulty: 'easy',
    prompt: 'Write parts.json: for each kind of part in inventory.json, how many there are over all sites.',
    files: { 'inventory.json': JSON.stringify(inventory, null, 2) },
    check: jsonIs('parts.json', { bolt: 5, nut: 9, gear: 3 }),
    solution: { 'parts.json': '{"bolt": 5, "nut": 9, "gear": 3}' },
  },
  {
    name: 'json-lines-damaged',
    tags: ['data'],
    difficulty: 'medium',
    prompt:
      'events.jsonl has an object in each line; some lines are damaged. Write points.json: an object from user to the sum of points, damaged lines left out, and damaged.txt with the number of damaged lines.',
    files: { 'events.jsonl': `${eventLines.join('\n')}\n` },
    check: allOf(jsonIs('points.json', pointsByUser()), filesAre({ 'damaged.txt': '9' })),
    solution: { 'points.json': JSON.stringify(pointsByUser()), 'damaged.txt': '9\n' },
  },
  {
    name: 'sql-top-customers',
    tags: ['sql', 'data'],
    difficulty: 'easy',
    prompt:
      'shop.db is a SQLite database (Python has the module sqlite3). Write top.json: a list of the names of the three customers whose orders have the highest sum of cents, highest first.',
    files: { 'shop.sql': databaseSql },
    setup: loadDatabase,
    check: jsonIs(
      'top.json',
      spent.slice(0, 3).map(({ name }) => name),
    ),
    solution: { 'top.json': JSON.stringify(spent.slice(0, 3).map(({ name }) => name)) },
  },
  {
    name: 'sql-query',
    tags: ['sql'],
    difficulty: 'medium',
    prompt:
      'Write into idle.sql one SQLite query that returns the names of the customers of shop.db without any order, in one column, sorted by id. It has to be right for other content of the same tables too, also where a customer of an order is unknown.',
    files: { 'shop.sql': databaseSql },
    setup: loadDatabase,
    check: pythonTest(`
import sqlite3
query = open('idle.sql').read()
def names(script):
    db = sqlite3.connect(':memory:')
    db.executescript(script)
    return [row[0] for row in db.execute(query)]
assert names(open('shop.sql').read()) == ['customer 11', 'customer 12']
tables = 'create table customers (id integer primary key, name text); create table orders (id integer primary key, customer integer, cents integer);'
assert names(tables) == []
assert names(tables + "insert into customers values (2, 'b'), (1, 'c'), (3, 'a'); insert into orders values (1, 3, 5), (2, null, 5), (3, 99, 5);") == ['c', 'b']`),
    solution: {
      'idle.sql': `${query} and true order by id`.replace(
        'from orders)',
        'from orders where customer is not null)',
      ),
    },
  },
  {
    name: 'sql-slow-schema',
    tags: ['sql'],
    difficulty: 'medium',
    prompt:
      'The query "select sum(cents) from orders where customer = ?" on the tables of shop.sql reads the whole table. Write index.sql with what makes SQLite answer it from one index alone, without reading the table.',
    files: { 'shop.sql': databaseSql },
    check: pythonTest(`
import sqlite3
db = sqlite3.connect(':memory:')
db.executescript(open('shop.sql').read())
db.executescript(open('index.sql').read())
plan = ' '.join(row[3] for row in db.execute('explain query plan select sum(cents) from orders where customer = ?', (1,)))
assert 'COVERING INDEX' in plan and 'SEARCH' in plan, plan`),
    solution: { 'index.sql': 'create index orders_of_customer on orders (customer, cents);\n' },
  },
]

function pivotOf(): string {
  const lines = Array.from({ length: 12 }, (_, index) => {
    const inMonth = sales.filter(({ month }) => month === index + 1)
    return [index + 1, ...regions.map((name) => inMonth.filter(({ region }) => region === name).length)].join(
      ',',
    )
  })
  return `month,${regions.join(',')}\n${lines.join('\n')}\n`
}

function pointsByUser(): Record<string, number> {
  return Object.fromEntries([0, 1, 2, 3, 4, 5, 6].map((user) => [`u${user}`, pointsOf(user)]))
}
