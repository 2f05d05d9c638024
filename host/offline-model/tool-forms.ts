/**
 * Requests for one tool in plain words: a row for each wording, tried on clauses that no other rule covers. `[x]` is optional,
 * `(x|y)` a choice, `{field:kind}` an argument.
 */
import type { UserIntent } from './intents.ts'
import { type Clause, isQuoted, quotedPattern } from './phrases.ts'
import { type Groups, groupsOf, looksLikeFile, resolvePath } from './rule-groups.ts'
import type { CsvContext } from './understand-csv.ts'

type CallIntent = Extract<UserIntent, { kind: 'call-tool' }>

/** The wording, the tool, and arguments that the wording does not name. */
type Form = readonly [wording: string, tool: string, given?: Readonly<Record<string, unknown>>]

const agent = '[the ]sub[-]agent {agent:name}'

const forms: readonly Form[] = [
  ['apply (this|the|my) (patch|diff)[:] {patch:quoted}', 'apply_patch'],
  ['search [the ]code by meaning for {query:text}', 'search_code', { by: 'meaning' }],
  ['find [me ][the ](code|passages) (about|for|that|which|where) {query:text} in {path:file}', 'search_code'],
  ['find [me ][the ](code|passages) (about|for|that|which|where) {query:text}', 'search_code'],
  ['(run|execute) (this|the|my) python[ code| program][:] {code:quoted}', 'run_python'],
  ['(run|execute) (this|the|my) (javascript|js)[ code| program][:] {code:quoted}', 'run_javascript'],
  ['(ask|request) [for ]access to {url:url} (because|as|since) {reason:text}', 'request_access'],
  ['(ask|request) [for ]access to {url:url}', 'request_access', { reason: 'The task asks for this access.' }],
  ['(read|show) [me ][the ][whole |full ]output of [the ]call {callId:name}', 'read_output'],
  [
    '(spawn|start|launch) (a|another) sub[-]agent (to|that|for|with the brief)[:] {brief:text}',
    'spawn_agent',
  ],
  [`(read|show) [me ]{path:name} as ${agent} left it`, 'read_agent_file'],
  [`take {path:name} from ${agent}`, 'take_agent_file'],
  ['(revise|change) the plan because {reason:text}: {plan:json}', 'revise_plan'],
  ['list [the ]resources of [the ][mcp ]server {server:name}', 'list_mcp_resources'],
  ['list [the ][mcp ]resources[ of (all|the) [mcp ]servers]', 'list_mcp_resources'],
  ['read [the ]resource {uri:name} of [the ][mcp ]server {server:name}', 'read_mcp_resource'],
  [
    'get [the ]prompt {name:name} of [the ][mcp ]server {server:name} with {arguments:json}',
    'get_mcp_prompt',
  ],
  ['get [the ]prompt {name:name} of [the ][mcp ]server {server:name}', 'get_mcp_prompt'],
]

/** A tool by its own name: of the application, of an MCP server, or of the agent. */
const byName = [
  '(call|use) [the ][tool ]{tool:name} with[ the arguments][:] {args:json}',
  'call the tool {tool:name}',
]

/** What a value looks like, and how it is read; undefined when it is none. */
const kinds = {
  text: ['.+?', (g, field) => written(g, field)],
  quoted: [quotedPattern, (g, field) => g.text(field) ?? undefined],
  name: [`(?:${quotedPattern}|[^\\s,;"']+)`, (g, field) => written(g, field)],
  url: [`(?:${quotedPattern}|https?://\\S+)`, (g, field) => written(g, field)],
  file: [
    `(?:${quotedPattern}|[^\\s,;"']+)`,
    (g, field, { paths }) => {
      const path = resolvePath(g.path(field), paths)
      return paths.includes(`${path}/`) || looksLikeFile(path, g.raw(field)) ? path : undefined
    },
  ],
  json: [quotedPattern, (g, field) => readObject(g.text(field) ?? '')],
} as const satisfies Record<
  string,
  readonly [string, (groups: Groups, field: string, scene: CsvContext) => unknown]
>

type Kind = keyof typeof kinds
type Read = (clause: Clause, scene: CsvContext) => Readonly<Record<string, unknown>> | null

const field = /\{(\w+):(\w+)\}/g

function compile(wording: string): Read {
  const fields = [...wording.matchAll(field)].map(([, name = '', kind]) => [name, kind as Kind] as const)
  const source = wording
    .replaceAll('[', '(?:')
    .replaceAll(']', ')?')
    .replaceAll(field, (_, name: string, kind: Kind) => `(?<${name}>${kinds[kind][0]})`)
  const pattern = new RegExp(`^${source}$`, 'is')
  return (clause, scene) => {
    const match = pattern.exec(clause.text)
    if (match === null) return null
    const groups = groupsOf(match, clause, scene)
    const read = fields.map(([name, kind]) => [name, kinds[kind][1](groups, name, scene)] as const)
    return read.some(([, value]) => value === undefined) ? null : Object.fromEntries(read)
  }
}

const readers = forms.map(([wording, tool, given = {}]) => [compile(wording), tool, given] as const)
const namedReaders = byName.map(compile)

/** The call that a clause asks for; null for any other clause. */
export function readToolForm(clause: Clause, scene: CsvContext): CallIntent | null {
  for (const [read, tool, given] of readers) {
    const found = read(clause, scene)
    if (found !== null) return { kind: 'call-tool', tool, args: JSON.stringify({ ...given, ...found }) }
  }
  for (const read of namedReaders) {
    const found = read(clause, scene)
    if (found !== null)
      return { kind: 'call-tool', tool: String(found.tool), args: JSON.stringify(found.args ?? {}) }
  }
  return null
}

/** The words as they were written, without quotes around all of them. */
function written(g: Groups, name: string): string | undefined {
  const text = isQuoted(g.raw(name) ?? '') ? g.text(name) : g.written(name)
  return text?.trim() || undefined
}

function readObject(text: string): object | undefined {
  try {
    const value: unknown = JSON.parse(text)
    return typeof value === 'object' && value !== null && !Array.isArray(value) ? value : undefined
  } catch {
    return undefined
  }
}
