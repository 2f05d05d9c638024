// What newcomers type to a coding agent, on a small project: understood and done, with its effect or answer, or declined
// whole. The agent's planner, executor and tools carry each task out in a folder of the test's own.
import { execFileSync } from 'node:child_process'
import { hash } from 'node:crypto'
import { mkdirSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import type { CompletionRequest } from '#specs/protocol/completion-request.ts'
import { reply } from '#specs/testing/model-replies.ts'
import type { Script } from '#specs/testing/model-server.ts'
import { runTask } from '../../agent/test/hostile/world.ts'
import { helperInFolder } from '../../agent/test/support/tools.ts'
import { type Snapshot, snapshot } from '../../agent/test/support/trees.ts'
import { createCodeTools } from '../../agent/tools/code/code.ts'
import { understandTask } from '../../host/offline-model/understand.ts'
import { answerOffline } from '../../host/offline-model/upstream.ts'

const project: Readonly<Record<string, string>> = {
  'README.md': '# Shop\n\nA small web shop for tea.\n',
  'package.json': JSON.stringify(
    {
      name: 'shop',
      version: '1.2.0',
      description: 'Sells tea',
      type: 'module',
      scripts: { test: 'node --test', build: 'node -e "console.log(`built`)"' },
      dependencies: { ms: '^2.1.3' },
    },
    null,
    2,
  ),
  'src/cart.js':
    '// TODO: discounts\nexport function total(items) {\n  return items.reduce((sum, { price }) => sum + price, 0)\n}\n',
  'src/address.js': 'export const shop = "http://shop.test"\n',
  'test/cart.test.js':
    'import { test } from "node:test"\nimport assert from "node:assert"\nimport { total } from "../src/cart.js"\ntest("adds", () => assert.equal(total([{ price: 2 }, { price: 3 }]), 5))\n',
  'config.json': '{"port":8080,"name":"shop"}',
  'names.txt': 'Zoe\nAda\nMax\nAda\n',
  'notes.txt': 'call Bob\n\nbuy tea\n',
  'logs/app.log': 'started\n',
  'logs/archive/old.log': 'old\n',
  'debug.log': 'x'.repeat(3000),
  'logo.png': 'not really an image',
  'data/prices.csv': 'tea,price\ngreen,3\nblack,2.5\n',
  'data/sales.csv': 'region,"net amount",units\nnorth,"1,200.10",3\nsouth,0.2,\nwest,99,4\n',
  'data/copy.csv': 'tea,price\ngreen,3\nblack,2.5\n',
}

interface Done {
  /** Part of why the run fails; absent: it completes. */
  readonly fails?: string
  readonly says?: readonly (string | RegExp)[]
  /** Content of files afterwards; null for those that are gone. */
  readonly files?: Readonly<Record<string, string | null>>
}

const declined = null
const tasks: readonly (readonly [string, Done | typeof declined])[] = [
  ["What's in this folder?", { says: ['README.md', 'src/', 'package.json'] }],
  ['What does this project do?', { says: ['A small web shop for tea.'] }],
  ['Run the tests', { says: [/pass 1/] }],
  ['What changed since the last commit?', { says: ['README.md', /\+A small web shop for tea/] }],
  [
    'Delete all log files',
    {
      files: {
        'debug.log': null,
        'logs/app.log': null,
        'logs/archive/old.log': null,
        'README.md': project['README.md'] ?? '',
      },
    },
  ],
  ['Find all the TODO comments', { says: ['src/cart.js', 'TODO: discounts'] }],
  ['How many lines of code are in this project?', { says: [/\b9 lines/, 'src/cart.js'] }],
  ['Which file is the biggest?', { says: [/debug\.log.*3,000 bytes/] }],
  ['Show me the README', { says: ['A small web shop for tea.'] }],
  [
    'Add "Thanks for reading" to the end of the README',
    { files: { 'README.md': `${project['README.md']}Thanks for reading\n` } },
  ],
  ['Rename notes.txt to todo.txt', { files: { 'notes.txt': null, 'todo.txt': project['notes.txt'] ?? '' } }],
  ['Show me the last 5 commits', { says: ['Say what we sell', 'First version'] }],
  ['What branch am I on?', { says: ['main'] }],
  [
    'Replace http:// with https:// in all files',
    { files: { 'src/address.js': 'export const shop = "https://shop.test"\n' } },
  ],
  ['Make a backup of config.json', { files: { 'config.json.bak': project['config.json'] ?? '' } }],
  ['Sort the lines in names.txt', { files: { 'names.txt': 'Ada\nAda\nMax\nZoe\n' } }],
  ['What is 19% of 1,249.50?', { says: ['237.405'] }],
  ['How big is this folder?', { says: [/\d bytes|kB/] }],
  ['List all JavaScript files', { says: ['src/cart.js', 'src/address.js', 'test/cart.test.js'] }],
  ['Where is the function total defined?', { says: ['src/cart.js'] }],
  ['Is there a license file?', { says: [/^\[offline model\] No/m] }],
  ['Remove the empty lines from notes.txt', { files: { 'notes.txt': 'call Bob\nbuy tea\n' } }],
  ['Sum the "net amount" column of data/sales.csv', { says: ['is 1299.3 (3 numbers)'] }],
  [
    "What's the average of the units column in sales.csv?",
    { says: ['is 3.5 (2 numbers; 1 empty field left out)'] },
  ],
  ['What is the highest price in data/prices.csv?', { says: ['is 3 (2 numbers)'] }],
  ['Add up region in data/sales.csv', { fails: '"north" in row 2 of data/sales.csv is not a number' }],
  [
    'What is the total of size in data/sales.csv?',
    { fails: 'no column named size. Its columns: region, net amount, units' },
  ],
  [
    'Convert data/prices.csv to JSON',
    {
      files: {
        'data/prices.json':
          '[\n  {\n    "tea": "green",\n    "price": 3\n  },\n  {\n    "tea": "black",\n    "price": 2.5\n  }\n]\n',
      },
    },
  ],
  ['Pretty print config.json', { files: { 'config.json': '{\n  "port": 8080,\n  "name": "shop"\n}\n' } }],
  ['Which version of Python is installed?', { says: [/Python 3\.\d+/] }],
  ['What dependencies does this project have?', { says: ['ms'] }],
  [
    'Move all images into a folder called images',
    { files: { 'logo.png': null, 'images/logo.png': project['logo.png'] ?? '' } },
  ],
  ['Are there any duplicate files?', { says: ['data/copy.csv', 'data/prices.csv'] }],
  ['Show me the first 2 lines of names.txt', { says: [/Zoe\nAda\n?$/m] }],
  [
    'Create a Python script that prints "Hello, World!" and run it',
    { says: ['Hello, World!'], files: { 'hello.py': 'print("Hello, World!")\n' } },
  ],
  ['Commit my changes with the message "Say more"', { says: ['Say more'] }],
  ['Build the project', { says: ['built'] }],
  ['What can you do?', { says: ['rename', 'tests'] }],
  ['Explain how src/cart.js works', declined],
  ['Fix the bug in cart.js', declined],
  ['Write unit tests for the cart', declined],
  ['Refactor the code to use TypeScript', declined],
  ['Clean up this folder', declined],
  ['Undo my last change', declined],
  ['Delete all the files I no longer need', declined],
]

const offline: Script = (asked) => reply(answerOffline(asked.body as unknown as CompletionRequest) as never)

/** Writes the project with two commits, and a line that is not committed. */
function makeProject(folder: string): void {
  const git = (...args: string[]) =>
    execFileSync('git', ['-c', 'user.name=Ada', '-c', 'user.email=ada@shop.test', ...args], { cwd: folder })
  const write = (name: string, content: string): void => {
    mkdirSync(path.dirname(path.join(folder, name)), { recursive: true })
    writeFileSync(path.join(folder, name), content)
  }
  for (const [name, content] of Object.entries(project)) write(name, content)
  write('README.md', '# Shop\n')
  git('init', '-q', '-b', 'main')
  git('config', 'user.name', 'Ada')
  git('config', 'user.email', 'ada@shop.test')
  git('add', '-A')
  git('commit', '-q', '-m', 'First version')
  write('package.json', project['package.json'] ?? '')
  git('commit', '-q', '--allow-empty', '-m', 'Say what we sell')
  write('README.md', project['README.md'] ?? '')
}

/** How the run ended, and the tree before and after it, without what git keeps for itself. */
async function carryOut(prompt: string) {
  let before: Snapshot = {}
  const { completion, files } = await runTask(offline, {
    task: { prompt },
    tools: (folder) => {
      makeProject(folder)
      before = snapshot(folder)
      return createCodeTools(helperInFolder(folder))
    },
  })
  const own = (tree: Snapshot): Snapshot =>
    Object.fromEntries(Object.entries(tree).filter(([name]) => !/^\.git(\/|$)/.test(name)))
  return { completion, before: own(before), after: own(files) }
}

describe('a task that a newcomer types', () => {
  it('is one of forty-five, and at least thirty of them are understood [S4.06]', () => {
    expect(tasks).toHaveLength(45)
    expect(tasks.filter(([, done]) => done !== declined).length).toBeGreaterThanOrEqual(30)
  })

  it.each(tasks)('%s [S4.06]', async (prompt, done) => {
    const { completion, before, after } = await carryOut(prompt)
    if (done === declined) {
      expect(completion.outcome).toBe('failed')
      expect(JSON.stringify(completion)).toContain('not understood')
      expect(after).toEqual(before)
      return
    }
    if (done.fails !== undefined) {
      expect(completion).toMatchObject({ outcome: 'failed', message: expect.stringContaining(done.fails) })
      return
    }
    expect(completion, JSON.stringify(completion)).toMatchObject({ outcome: 'completed' })
    for (const said of done.says ?? []) expect(completion.summary).toMatch(said)
    for (const [name, content] of Object.entries(done.files ?? {})) {
      if (content === null) expect(after).not.toHaveProperty([name])
      else expect(after[name]?.split(' ')[2], name).toBe(hash('sha256', content))
    }
    if (done.files === undefined) expect(after).toEqual(before)
  })
})

/** Written after the rules, to see whether they are rules; two of the twenty are not understood. */
const otherWordings: readonly (readonly [string, string])[] = [
  ['can you tell me what files there are in here?', 'list'],
  ['give me a short overview of this repo', 'overview'],
  ['do all the tests pass?', 'run-tests'],
  ['show me my uncommitted changes', 'changes'],
  ['get rid of every .log file', 'delete-files'],
  ['search the code for TODOs', 'search'],
  ['count the lines of code', 'count-each'],
  ['what are the 3 largest files?', 'largest'],
  ['open readme.md', 'read'],
  ['append "Bye" to the readme', 'append'],
  ['what were the last three commits', 'commits'],
  ['which git branch is this?', 'branch'],
  ['change "tea" to "coffee" everywhere', 'replace-in-files'],
  ['back up config.json', 'copy'],
  ['put the lines of names.txt in alphabetical order', 'not understood'],
  ['how much disk space does this project use', 'size'],
  ['find where total is defined', 'not understood'],
  ['do we have a LICENSE?', 'exists'],
  ['delete blank lines in notes.txt', 'drop-empty-lines'],
  ['turn prices.csv into a json file', 'csv-to-json'],
  ['calculate the mean of the units column of sales.csv', 'average-column'],
  ['add up the units in sales.csv', 'sum-column'],
  ['what is the lowest value in the price column of prices.csv', 'smallest-in-column'],
  ['total price in notes.txt', 'not understood'],
]

describe('the same in other words', () => {
  const listing = Object.keys(project).map((name) => `${name} (9 bytes)`)
  const meant = (task: string): string => {
    const read = understandTask(task, listing)
    return read.ok
      ? read.intents.map((intent) => (intent.kind === 'chore' ? intent.chore : intent.kind)).join()
      : 'not understood'
  }

  it.each(otherWordings)('%s: %s [S4.06]', (task, kind) => expect(meant(task)).toBe(kind))

  it.each([
    'How do I run the tests?',
    'Do not run the tests',
    'Run the tests only if the build passes',
    'Make the tests pass',
    'What changed yesterday?',
    'Delete all files',
    'Remove everything in here',
    'Delete all log files older than a week',
    'Delete all old files',
    'Replace foo with bar in all files except a.txt',
    'Install docker',
    'Is there a bug in this code?',
    'Call Bob about the tests',
    'Apply the patch',
    'Run this Python code',
    'Note: the tests need Docker',
    'Find a bug that crashes the app',
    'Use the tool of your choice',
    'Call search_files with {"pattern": }',
    'Get access to the server',
  ])('is not guessed from words that are alike: %s [S4.06]', (task) => {
    expect(meant(task)).toBe('not understood')
  })
})
