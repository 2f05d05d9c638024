/**
 * The runs that the repository keeps as exports, and how each is made: the files, the replies of the model, the answers
 * of the person. Nothing in them depends on the machine or the time.
 */
import { reply } from '#specs/testing/model-replies.ts'
import type { Asked, Script, ServerReply } from '#specs/testing/model-server.ts'
import type { RunOptions } from '../../host/index.ts'

export interface RecordedTask {
  /** Of the export: `fixtures/NAME.caisson`. */
  readonly name: string
  readonly prompt: string
  /** Content by path. */
  readonly files: Readonly<Record<string, string>>
  readonly options: Partial<Pick<RunOptions, 'approvals' | 'onApproval' | 'extensions'>>
  readonly script: () => Script
}

const call = (name: string, input: unknown): ServerReply => reply({ calls: [{ name, arguments: input }] })
const bash = (command: string): ServerReply => call('run_bash', { command })
const say = (text: string): ServerReply => reply({ text })
const step = (id: string, more: object = {}) => ({
  ...{ id, title: id, instructions: id.toUpperCase(), needs: [], writes: ['*'] },
  ...more,
})
const planOf = (...steps: object[]) => ({ goal: 'Order the parts', steps })

/** Each agent gets the replies under the word in capitals with which its instructions begin; without one, the plan. */
function byInstructions(
  plan: object,
  replies: Readonly<Record<string, readonly ServerReply[]>>,
): () => Script {
  return () => {
    const turns = new Map<string, number>()
    return (asked: Asked) => {
      const user = asked.messages.find(({ role }) => role === 'user')?.content ?? ''
      const word = /<instructions>\n(?:.*\n\n)?([A-Z]{2,})/.exec(user)?.[1]
      if (word === undefined) return call('submit_plan', plan)
      const turn = turns.get(word) ?? 0
      turns.set(word, turn + 1)
      return replies[word]?.[turn] ?? say(`${word} is done`)
    }
  }
}

const parts = 'id,count\nb2,5\na7,1\nc3,9\n'

const filesAndCommands: RecordedTask = {
  name: 'files-and-commands',
  prompt: 'Sort the parts and correct the notes',
  files: { 'parts.csv': parts, 'docs/notes.md': '# Notes\n\nThere are 2 parts.\n' },
  options: {},
  script: byInstructions(planOf(step('sort'), step('notes', { needs: ['sort'] })), {
    SORT: [
      bash('tail -n +2 parts.csv | sort | tee sorted.csv && wc -l <sorted.csv'),
      bash('echo one; echo two >&2; exit 3'),
      call('read_file', { path: 'parts.csv' }),
      call('write_file', { path: 'bin/count.sh', content: '#!/bin/sh\nwc -l <"$1"\n' }),
      bash('chmod +x bin/count.sh && ./bin/count.sh sorted.csv && ln -s sorted.csv newest.csv'),
      say('There are 3 parts.'),
    ],
    NOTES: [
      call('search_files', { pattern: '2 parts' }),
      call('read_file', { path: 'docs/notes.md' }),
      call('edit_file', { path: 'docs/notes.md', oldText: '2 parts', newText: '3 parts' }),
      call('edit_file', { path: 'docs/notes.md', oldText: 'no such text', newText: 'text' }),
      bash('cat docs/notes.md; git --version >/dev/null && echo has git'),
      say('The notes are correct.'),
    ],
  }),
}

const revised = planOf(step('lead'), step('check', { needs: ['lead'] }))

const agentsAndRevision: RecordedTask = {
  name: 'agents-and-revision',
  prompt: 'Have the report written and check it',
  files: { 'parts.csv': parts },
  options: {},
  script: byInstructions(planOf(step('lead'), step('publish', { needs: ['lead'] })), {
    LEAD: [
      call('spawn_agent', { brief: 'PEN', name: 'pen' }),
      call('revise_plan', { reason: 'a report is checked before anybody reads it', plan: revised }),
      say('The report is written.'),
    ],
    PEN: [
      call('read_file', { path: 'parts.csv' }),
      call('write_file', { path: 'report.md', content: '# Parts\n\nThree parts.\n' }),
      call('edit_file', { path: 'parts.csv', oldText: 'b2,5', newText: 'b2,6' }),
      say('PEN wrote report.md'),
    ],
    CHECK: [bash('cat report.md parts.csv'), say('The report is checked.')],
  }),
}

const questionsAndApprovals: RecordedTask = {
  name: 'questions-and-approvals',
  prompt: 'Clean up, and ask before you delete',
  files: { 'old.txt': 'old\n', 'keep.txt': 'keep\n' },
  options: {
    approvals: { interactive: true, rules: [{ effect: 'ask', tool: 'run_bash', pattern: 'rm *' }] },
    onApproval: ({ question, arguments: given }) => {
      if (question !== undefined) return { decision: 'allow', answer: 'Inventory' }
      return given.includes('keep') ? { decision: 'deny', hint: 'keep.txt stays' } : 'allow'
    },
  },
  script: byInstructions(planOf(step('clean')), {
    CLEAN: [
      call('ask_user', { question: 'Which title?', kind: 'text' }),
      call('delete_file', { path: 'old.txt' }),
      bash('rm keep.txt'),
      bash('printf "# Inventory\\n" >title.md && ls'),
      say('old.txt is deleted, keep.txt is kept.'),
    ],
  }),
}

/** Counts the lines of a file of the workspace. */
const countingServer = `
import { existsSync, readFileSync } from 'node:fs'
import { createInterface } from 'node:readline'
const send = (id, result) => console.log(JSON.stringify({ jsonrpc: '2.0', id, result }))
const inputSchema = { type: 'object', properties: { path: { type: 'string' } }, required: ['path'] }
createInterface({ input: process.stdin }).on('line', (line) => {
  const { id, method, params } = JSON.parse(line)
  const { protocolVersion } = params ?? {}
  if (method === 'initialize')
    send(id, { protocolVersion, capabilities: { tools: {} }, serverInfo: { name: 'count', version: '1' } })
  if (method === 'tools/list')
    send(id, { tools: [{ name: 'lines', description: 'Counts lines', inputSchema }] })
  if (method === 'tools/call') {
    const file = '/mnt/workspace/' + params.arguments.path
    const isThere = existsSync(file)
    const text = isThere ? readFileSync(file, 'utf8').split('\\n').length - 1 + ' lines' : 'no such file'
    send(id, { content: [{ type: 'text', text }], isError: !isThere })
  }
})
`

const skillsMemoryAndMcp: RecordedTask = {
  name: 'skills-memory-and-mcp',
  prompt: 'Count the parts as the skill says, and remember what was hard to find',
  files: {
    'AGENTS.md': 'Reports are in English.\n',
    'parts.csv': parts,
    'servers/count.mjs': countingServer,
    '.agents/skills/count/SKILL.md':
      '---\nname: count\ndescription: Counts parts\n---\nThe first line is no part. See columns.md.\n',
    '.agents/skills/count/columns.md': 'id and count\n',
  },
  options: {
    approvals: { rules: [{ effect: 'allow', tool: 'count_lines' }] },
    extensions: { mcpServers: { count: { command: 'node', args: ['servers/count.mjs'] } } },
  },
  script: byInstructions(planOf(step('count')), {
    COUNT: [
      call('load_skill', { skillId: 'count' }),
      call('load_skill', { skillId: 'count', file: 'columns.md' }),
      call('load_skill', { skillId: 'none' }),
      call('count_lines', { path: 'parts.csv' }),
      call('count_lines', { path: 'missing.csv' }),
      call('remember', { text: 'The first line of parts.csv is no part', tags: ['parts'] }),
      call('recall', { query: 'parts' }),
      bash('echo 3 >count.txt'),
      say('There are 3 parts.'),
    ],
  }),
}

export const recordedTasks: readonly RecordedTask[] = [
  filesAndCommands,
  agentsAndRevision,
  questionsAndApprovals,
  skillsMemoryAndMcp,
]

/** The export of a run. */
export const fixtureOf = ({ name }: Pick<RecordedTask, 'name'>): string =>
  `${import.meta.dirname}/fixtures/${name}.caisson`
