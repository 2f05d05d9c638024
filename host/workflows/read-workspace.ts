/**
 * Reads the text of a workflow file. Accepts JSON, and the rest of YAML 1.2: names without quotes, comments. Reports every
 * problem with its key, path, line and column. Never throws for a text.
 */
import {
  isNode,
  isScalar,
  Lexer,
  LineCounter,
  parseDocument,
  visit,
  YAMLParseError,
  type Document as YamlDocument,
} from 'yaml'
import * as z from 'zod'
import { edgesOf, readWork } from '#specs/node/workflow/edges.ts'
import { findGraphProblems } from '#specs/node/workflow/graph.ts'
import type {
  TakenFunction,
  WorkflowFunction,
  WorkflowStep,
  WorkspaceData,
} from '#specs/node/workflow/workspace-data.ts'
import type { Result } from '#specs/protocol/error.ts'
import { plainMessages } from '#specs/protocol/issue-text.ts'
import {
  FunctionDetails,
  FunctionName,
  StepDetails,
  TakenFunctionDetails,
  WorkflowDetails,
} from '#specs/protocol/workflow-format.ts'
import {
  keyForms,
  parseKey,
  parseReference,
  stepKeyOf,
  type WorkflowKey,
} from '#specs/protocol/workflow-keys.ts'
import { nearestName } from '../files/nearest-name.ts'
import { findCallProblems } from './call-problems.ts'

export interface WorkflowProblem {
  /** Key of the file; empty for the file as a whole. */
  readonly key: string
  /** Below the key, names joined by dots; empty for the key itself. */
  readonly path: string
  /** What was expected and seen. May contain text of the file. */
  readonly message: string
  /** From 1. */
  readonly line: number
  readonly column: number
}

const fileMaxChars = 512 * 1024
const problemsMaxCount = 100
const keysMaxCount = 256
const depthMax = 256
const messageMaxChars = 400

/** @returns the workflow, or every problem in the order of the file */
export function readWorkspace(text: string): Result<WorkspaceData, readonly WorkflowProblem[]> {
  if (text.length > fileMaxChars)
    return fail([whole(`has ${text.length} characters; at most ${fileMaxChars} are allowed`)])
  const lines = new LineCounter()
  const parsed = parse(text, lines)
  if (!parsed.ok) return fail([whole(parsed.error)])
  const { document, value } = parsed.value
  const errors = document.errors.map(({ message, pos }) => {
    const { line, col } = lines.linePos(pos[0])
    const [first = ''] = message.split(/ at line \d+|\n/)
    return {
      key: '',
      path: '',
      message: `cannot be read as JSON: ${first.slice(0, messageMaxChars)}`,
      line,
      column: col,
    }
  })
  if (errors.length > 0) return fail(errors)
  const place = placeIn(document, lines)
  const { data, problems } = collect(value, place)
  if (data === null || problems.length > 0) return fail(problems)
  const inGraph = check(data, place)
  return inGraph.length > 0 ? fail(inGraph) : { ok: true, value: data }
}

function fail(problems: readonly WorkflowProblem[]): { ok: false; error: readonly WorkflowProblem[] } {
  return {
    ok: false,
    error: problems.toSorted((a, b) => a.line - b.line || a.column - b.column).slice(0, problemsMaxCount),
  }
}

function whole(message: string): WorkflowProblem {
  return { key: '', path: '', message, line: 1, column: 1 }
}

interface Parsed {
  readonly document: YamlDocument
  /** Undefined when the document has errors. */
  readonly value: unknown
}

/** Whether brackets nest too deeply: the parser takes seconds for each 100,000 of them. */
function isTooDeep(text: string): boolean {
  let depth = 0
  for (const token of new Lexer().lex(text)) {
    if (token === '[' || token === '{') depth += 1
    if (token === ']' || token === '}') depth -= 1
    if (depth > depthMax) return true
  }
  return false
}

function parse(text: string, lineCounter: LineCounter): Result<Parsed, string> {
  if (isTooDeep(text)) return { ok: false, error: 'is nested too deeply' }
  try {
    const document = parseDocument(text, {
      schema: 'core',
      merge: false,
      // Takes quadratic time; `refuseKeys` does not.
      uniqueKeys: false,
      lineCounter,
      // Takes the whole line for each error; `readWorkspace` says where it is.
      prettyErrors: false,
      logLevel: 'silent',
    })
    refuseKeys(document)
    // An alias can expand a small text enormously.
    const value: unknown = document.errors.length > 0 ? undefined : document.toJS({ maxAliasCount: 0 })
    return { ok: true, value: { document, value } }
  } catch (error) {
    const isAlias = error instanceof ReferenceError
    return {
      ok: false,
      error: isAlias ? 'has aliases (*NAME); write their values out' : 'is nested too deeply',
    }
  }
}

/** Adds an error for each key that is twice in an object, and for each that is no text: some take exponential time. */
function refuseKeys(document: YamlDocument): void {
  visit(document, {
    Map: (_, { items }) => {
      const seen = new Set<unknown>()
      for (const { key } of items) {
        if (isNode(key) && !isScalar(key)) {
          const [start, end] = key.range ?? [0, 0]
          document.errors.push(new YAMLParseError([start, end], 'IMPOSSIBLE', 'a name must be text'))
        }
        if (!isScalar(key) || key.range == null) continue
        const [start, end] = key.range
        if (seen.has(key.value))
          document.errors.push(
            new YAMLParseError([start, end], 'DUPLICATE_KEY', 'this name is in the object twice'),
          )
        seen.add(key.value)
      }
    },
  })
}

type Place = (key: string, path: readonly PropertyKey[], message: string) => WorkflowProblem

/** Positions of values; of a value that is missing, the one it belongs to. */
function placeIn(document: YamlDocument, lines: LineCounter): Place {
  return (key, path, message) => {
    for (let length = path.length; length >= 0; length--) {
      const node = document.getIn([key, ...path.slice(0, length).map(toIndex)], true)
      if (!isNode(node) || node.range == null) continue
      const { line, col } = lines.linePos(node.range[0])
      return { key, path: path.map(String).join('.'), message, line, column: col }
    }
    return { ...whole(message), key, path: path.map(String).join('.') }
  }
}

function toIndex(part: PropertyKey): unknown {
  return typeof part === 'symbol' ? String(part) : part
}

interface Collected {
  readonly data: WorkspaceData | null
  readonly problems: WorkflowProblem[]
}

function collect(value: unknown, place: Place): Collected {
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    return { data: null, problems: [whole(`must be an object with the keys ${keyForms}`)] }
  const entries = Object.entries(value).filter(([text]) => text !== '$schema')
  if (entries.length > keysMaxCount)
    return {
      data: null,
      problems: [whole(`has ${entries.length} keys; at most ${keysMaxCount} are allowed`)],
    }
  const problems: WorkflowProblem[] = []
  const keys = entries.flatMap(([text, details]): ReadKey[] => {
    const key = parseKey(text)
    if (key === null) problems.push(place(text, [], describeNoKey(text)))
    return key === null ? [] : [{ text, key, details }]
  })
  if (keys.length === 0)
    return { data: null, problems: [whole(`is no workflow: it has none of the keys ${keyForms}`)] }
  const lists = keys.filter(({ key }) => key.kind === 'list')
  const [list, second] = lists
  if (list === undefined) {
    const [first] = keys
    const name = first === undefined ? 'AGENT@VERSION' : `${first.key.agent}@${first.key.version}`
    return {
      data: null,
      problems: [...problems, whole(`has no list of steps; expected the key "${name}#details"`)],
    }
  }
  if (second !== undefined)
    problems.push(place(second.text, [], `is a second list of steps; a file has one, here "${list.text}"`))
  for (const { text, key } of keys) {
    if (key.agent !== list.key.agent || key.version !== list.key.version)
      problems.push(
        place(
          text,
          [],
          `belongs to ${key.agent}@${key.version}; the list is of ${list.key.agent}@${list.key.version}`,
        ),
      )
  }
  const head = readDetails(WorkflowDetails, list, place, problems)
  const described = keys.filter(({ key }) => key.kind === 'func')
  const functions = described
    .filter((read) => !isTaken(read))
    .flatMap((read) => toFunction(read, place, problems))
  const taken = described.filter(isTaken).flatMap((read) => toTaken(read, place, problems))
  const details = keys
    .filter(({ key }) => key.kind === 'step')
    .map((read) => ({ ...read, details: readDetails(StepDetails, read, place, problems) }))
  if (head === null) return { data: null, problems }
  const { steps: listed, ...rest } = head
  const steps = toSteps(listed, { list, details, place, problems })
  const { agent, version } = list.key
  const others = taken.length === 0 ? {} : { taken }
  return { data: { agent, version, ...rest, steps, functions, ...others }, problems }
}

/** YAML takes a comment of another language, with the key behind it, for one key. */
function describeNoKey(text: string): string {
  return /^\/[/*]/.test(text)
    ? 'begins with a comment of another form; comments begin with #'
    : `is no key of a workflow; expected ${keyForms}`
}

interface ReadKey {
  readonly text: string
  readonly key: WorkflowKey
  readonly details: unknown
}

/** Names the field that somebody may have meant. */
const messages: z.core.ParseContext<z.core.$ZodIssue> = {
  error: (issue) => {
    const said = plainMessages.error?.(issue)
    if (typeof said !== 'string' || issue.code !== 'unrecognized_keys') return said
    const fields = issue.inst instanceof z.ZodObject ? Object.keys(issue.inst.shape) : []
    const meant = issue.keys.slice(0, 8).flatMap((key) => nearestName(key, fields) ?? [])
    return meant.length === 0 ? said : `${said}; did you mean ${meant.map((name) => `"${name}"`).join(', ')}?`
  },
}

function readDetails<T extends z.ZodType>(
  schema: T,
  { text, details }: ReadKey,
  place: Place,
  problems: WorkflowProblem[],
): z.infer<T> | null {
  const read = schema.safeParse(details, messages)
  if (read.success) return read.data
  const issues = read.error.issues.slice(0, problemsMaxCount)
  problems.push(...issues.map(({ path, message }) => place(text, path, message)))
  return null
}

function toFunction(read: ReadKey, place: Place, problems: WorkflowProblem[]): WorkflowFunction[] {
  const details = readDetails(FunctionDetails, read, place, problems)
  if (details === null) return []
  const { name } = read.key
  if (details.name !== undefined && details.name !== name)
    problems.push(place(read.text, ['name'], `must be "${name}" as in the key, got "${details.name}"`))
  if (!FunctionName.safeParse(name).success)
    problems.push(
      place(
        read.text,
        [],
        `"${name}" is no name of a function; expected a letter or _, then at most 63 of A-Z a-z 0-9 _ -`,
      ),
    )
  const twice = details.parameters.findIndex(
    (one, index) => details.parameters.findIndex((other) => other.name === one.name) < index,
  )
  if (twice >= 0)
    problems.push(place(read.text, ['parameters', twice, 'name'], 'is the name of an earlier parameter, too'))
  return [{ ...details, name }]
}

function isTaken({ details }: ReadKey): boolean {
  return typeof details === 'object' && details !== null && Object.hasOwn(details, 'from')
}

function toTaken(read: ReadKey, place: Place, problems: WorkflowProblem[]): TakenFunction[] {
  const details = readDetails(TakenFunctionDetails, read, place, problems)
  if (details === null) return []
  const { name } = read.key
  const reference = parseReference(details.from)
  if (reference === null) problems.push(place(read.text, ['from'], notOfStore))
  else if (reference.name !== name)
    problems.push(
      place(
        read.text,
        ['from'],
        `must end in "func-${name}" as the key does, since functions keep their names`,
      ),
    )
  return [{ ...details, name }]
}

const notOfStore = 'names an agent or version with / or \\, or of dots alone, which no store has'

interface StepParts {
  readonly list: ReadKey
  readonly details: readonly (ReadKey & { readonly details: StepDetails | null })[]
  readonly place: Place
  readonly problems: WorkflowProblem[]
}

type Listed = z.infer<typeof WorkflowDetails>['steps']

function toSteps(listed: Listed, { list, details, place, problems }: StepParts): WorkflowStep[] {
  const used = new Set<string>()
  const ids = new Set<string>()
  const steps = listed.flatMap(({ id, name = id }, index): WorkflowStep[] => {
    if (ids.has(id)) {
      problems.push(place(list.text, ['steps', index, 'id'], `"${id}" is in the list twice`))
      return []
    }
    ids.add(id)
    const read = details.find(({ key }) => key.name === id) ?? details.find(({ key }) => key.name === name)
    if (read === undefined) {
      problems.push(
        place(list.text, ['steps', index], `has no details; expected the key "${stepKeyOf(list.key, id)}"`),
      )
      return []
    }
    used.add(read.text)
    if (read.details === null) return []
    const step = read.details
    if (step.id !== undefined && step.id !== id)
      problems.push(place(read.text, ['id'], `must be "${id}" as in the list, got "${step.id}"`))
    const work = readWork(step)
    if (!work.ok) {
      problems.push(place(read.text, [], work.error))
      return []
    }
    if (step.sha256 !== undefined && work.value !== 'from')
      problems.push(place(read.text, ['sha256'], 'belongs to `from`, which this step does not have'))
    if (step.from !== undefined && parseReference(step.from) === null)
      problems.push(place(read.text, ['from'], notOfStore))
    const following = listed[index + 1]?.id
    return [{ id, name, work: work.value, details: step, next: edgesOf(step, following) }]
  })
  for (const { text, key } of details) {
    if (!used.has(text))
      problems.push(
        place(text, [], `is not in the list of steps; add {"id": "${key.name}"} to "${list.text}"`),
      )
  }
  return steps
}

/** Problems of a file whose parts are each in order. */
function check(data: WorkspaceData, place: Place): WorkflowProblem[] {
  // To find a place takes as long as its object is large.
  const found = [...findGraphProblems(data), ...findCallProblems(data)].slice(0, problemsMaxCount)
  return found.map(({ step, path, message }) =>
    place(step === null ? `${data.agent}@${data.version}#details` : stepKeyOf(data, step), path, message),
  )
}
