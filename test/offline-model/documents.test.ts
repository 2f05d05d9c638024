// What README.md, docs/ and specs/gateway.md say that the offline model understands: their own examples,
// carried out by the agent's
// planner, executor and tools in a folder of the test's own.
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import type { CompletionRequest } from '#specs/protocol/completion-request.ts'
import { reply } from '#specs/testing/model-replies.ts'
import type { Script } from '#specs/testing/model-server.ts'
import { type Ending, runTask, type WorldOptions } from '../../agent/test/hostile/world.ts'
import { helperInFolder } from '../../agent/test/support/tools.ts'
import { temporaryFolder } from '../../agent/test/support/trees.ts'
import { createCodeTools } from '../../agent/tools/code/code.ts'
import { defaultFolders } from '../../agent/workspace/file-access.ts'
import { act } from '../../host/offline-model/act.ts'
import type { PastConversation } from '../../host/offline-model/conversation.ts'
import type { UserIntent } from '../../host/offline-model/intents.ts'
import { understandTask } from '../../host/offline-model/understand.ts'
import { answerOffline } from '../../host/offline-model/upstream.ts'

const root = path.join(import.meta.dirname, '../..')
const read = (name: string): string => readFileSync(path.join(root, name), 'utf8')
const pages = readdirSync(path.join(root, 'docs')).map((page) => path.join('docs', page))

/** Tasks of `caisson run` and of the library, but for those that the documents say need a model. */
function readmeTasks(): string[] {
  const lines = ['README.md', ...pages].flatMap((file) => read(file).split('\n'))
  const commands = lines.filter((line) => /^caisson run\b/.test(line) && !/needs a model/.test(line))
  const tasks = commands.flatMap((line) => /(["'])(.+?)\1(?:\s|$)/.exec(line)?.[2] ?? [])
  const prompts = lines.flatMap((line) => /\bprompt: '([^']+)'/.exec(line)?.[1] ?? [])
  return [...tasks, ...prompts]
}

/** The second column of the table of requests. */
function tableTasks(): string[] {
  const [, table = ''] = read('specs/gateway.md').split('| request | for example | what happens |\n')
  const rows = table.split('\n').slice(1)
  return rows
    .slice(
      0,
      rows.findIndex((row) => !row.startsWith('|')),
    )
    .flatMap((row) => {
      const column = row.split('|')[2] ?? ''
      return [...column.matchAll(/(`+)(.+?)\1/g)].map(([, , task = '']) => task.trim())
    })
}

const files = {
  'a.txt': 'foo bar x\n',
  'data.csv': 'day,sold\n2024-01-01,1\n2024-01-02,2\n',
  'draft.md': 'Plan for 2025\n',
  'notes.md': '# Notes\n',
  'old.txt': 'old\n',
  'sales.csv': 'day,sold\n2024-01-01,1\n2024-01-02,2\n2024-01-03,3\n',
  'src/x.py': '# TODO: more\nprint(1)\n',
  'build.sh': 'echo built\n',
  'docs/keep.txt': 'x\n',
}

/** Files in the run's read-only folders, by their path below {@link defaultFolders}. */
const readOnlyFiles = { 'data/a.csv': 'day,sold\n', 'prices/march.csv': 'item,price\nbread,3\n' }

/** Tools whose effect is the host's: no more is looked at than that they are called. */
const toolsOfHost: Partial<Record<UserIntent['kind'], string>> = {
  'fetch-page': 'web_fetch',
  'summarize-page': 'web_fetch',
  'save-page': 'web_fetch',
  ask: 'ask_user',
  remember: 'remember',
  'search-web': 'web_search',
  'add-note': 'governance_note',
  'list-notes': 'governance_note',
}

const offline: Script = (asked) => {
  const { reasoning, text, calls } = answerOffline(asked.body as unknown as CompletionRequest)
  return reply({ reasoning, text, calls: calls.map((call) => ({ ...call, name: call.name })) })
}

async function runOffline(
  task: NonNullable<WorldOptions['task']>,
  given: Record<string, string>,
  folders?: string,
): Promise<Ending> {
  const tools = (folder: string) => createCodeTools(helperInFolder(folder))
  const place = folders === undefined ? {} : { folders }
  return await runTask(offline, { task, files: given, ...place, tools, deadlineMs: 50_000 })
}

function firstCall(intent: UserIntent): string | undefined {
  const name = toolsOfHost[intent.kind] ?? ''
  const tools = new Map([[name, { name, parameters: [] }]])
  const conversation: PastConversation = {
    stage: 'step',
    task: '',
    workspace: [],
    instructions: '',
    results: [],
    tools,
    calls: [],
  }
  return act(intent, conversation).calls[0]?.name
}

const tasks = [...new Set([...readmeTasks(), ...tableTasks()])]

describe('a task that the documents give as an example', () => {
  it('is found in them', () => {
    expect(readmeTasks().length).toBeGreaterThanOrEqual(4)
    expect(tableTasks().length).toBeGreaterThanOrEqual(25)
    expect(tasks).toContain('Count the words of every file')
  })

  it.each(tasks)('is carried out by the offline model: %s [S4.06]', async (task) => {
    const given: Record<string, string> = {
      ...files,
      ...(task.includes('and b.txt') ? { 'b.txt': 'b\n' } : {}),
    }
    const listing = [...Object.keys(given).map((name) => `${name} (9 bytes)`), 'docs/', 'src/']
    const understood = understandTask(task, listing)
    if (!understood.ok) throw new Error(understood.reason)
    const ofHost = understood.intents.filter(({ kind }) => toolsOfHost[kind] !== undefined)
    if (ofHost.length > 0) {
      expect(ofHost.map(firstCall)).toEqual(ofHost.map(({ kind }) => toolsOfHost[kind]))
      return
    }
    using place = temporaryFolder()
    for (const name of Object.keys(readOnlyFiles)) mkdirSync(path.join(place.path, path.dirname(name)))
    for (const [name, content] of Object.entries(readOnlyFiles))
      writeFileSync(path.join(place.path, name), content)
    const prompt = task.replaceAll(defaultFolders, place.path)
    const { completion } = await runOffline({ prompt }, given, place.path)
    expect(completion, JSON.stringify(completion)).toMatchObject({ outcome: 'completed' })
    expect(completion.summary).toContain('[offline model]')
    expect(completion.summary).not.toMatch(/could not|did not/)
  })
})

describe('the offline model', () => {
  it('counts what every file holds, each and together [S4.06]', async () => {
    const given = { 'a.txt': 'one two\n', 'sub/b.md': 'three\n', 'empty.txt': '' }
    const { completion } = await runOffline({ prompt: 'Count the words of every file' }, given)
    expect(completion.summary).toContain('3 words in 3 files')
    for (const line of ['- a.txt: 2 words', '- sub/b.md: 1 word', '- empty.txt: 0 words'])
      expect(completion.summary).toContain(line)
  })

  it('gives a fraction with all of its digits and no others [S4.06]', async () => {
    for (const [prompt, result] of [
      ['What is 17 % of 2340?', '397.8'],
      ['What is 0.1 + 0.2?', '0.3'],
      ['Calculate 1 / 1024', '0.0009765625'],
      ['Calculate 0 - 1 / 8', '-0.125'],
      ['Calculate 10 / 4', '2.5'],
      ['What is 20% off 80?', '64'],
      ['What is 2^20?', '1,048,576'],
      ['Calculate 12,345.25 * 1000', '12,345,250'],
    ] as const) {
      const { completion } = await runOffline({ prompt }, {})
      expect(completion.summary).toMatch(new RegExp(`= ${result.replace('.', '\\.')}\\s*$`, 'm'))
    }
  })

  it('runs the whole line behind "run the command:" as one command [S4.06]', async () => {
    const prompt = 'Run the command: echo one > x.txt; cat x.txt && echo "a; b" >> x.txt'
    const { completion, files: after } = await runOffline({ prompt }, {})
    expect(completion).toMatchObject({ outcome: 'completed' })
    expect(JSON.stringify(after)).toContain('x.txt')
    expect(completion.summary).toContain('one')
  })

  it('carries out a plan that a person wrote, with several orders in a step [S4.06 A.11]', async () => {
    const plan = {
      goal: 'Say hello',
      steps: [
        { id: 'make', title: 'Make it', instructions: 'Create hello.txt with the content "hi there".' },
        {
          id: 'change',
          title: 'Change it',
          instructions: 'Replace "hi" with "ho" in hello.txt. Then count the words of hello.txt.',
          needs: ['make'],
        },
      ],
    }
    const { completion } = await runOffline({ prompt: 'Say hello', plan } as never, {})
    expect(completion, JSON.stringify(completion)).toMatchObject({ outcome: 'completed' })
    expect(completion.summary).toContain('hello.txt has 2 words')
  })

  it('says of a step that it does not understand what that is, and does nothing [S4.06]', async () => {
    const plan = {
      goal: 'g',
      steps: [{ id: 's', title: 't', instructions: 'Delete a.txt. Port it to Python 3.' }],
    }
    const ended = await runOffline({ prompt: 'g', plan } as never, { 'a.txt': 'a' })
    expect(ended.completion).toMatchObject({ outcome: 'failed' })
    expect(JSON.stringify(ended.completion)).toContain('not understood: Port it to Python 3')
    expect(ended.isChanged).toBe(false)
  })
})
