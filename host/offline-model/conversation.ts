/**
 * Parses a request: the stage, the task, the step, the offered tools and their results. The format is that of the agent's
 * prompts (their first lines, headings and blocks).
 */
import { type CompletionRequest, contentText } from '#specs/protocol/completion-request.ts'

export interface OfferedTool {
  readonly name: string
  /** Names of its parameters. */
  readonly parameters: readonly string[]
}

/** A call of this step with its result. */
export interface PastCall {
  readonly name: string
  readonly output: string
  /** The stable code of a failure; null when the call succeeded. */
  readonly errorCode: string | null
}

export interface PastConversation {
  readonly stage: 'plan' | 'step' | 'workflow' | 'other'
  readonly task: string
  /** One entry a line: `path (N bytes)`, folders as `path/`. */
  readonly workspace: readonly string[]
  readonly instructions: string
  /** Answers of the steps before. */
  readonly results: readonly string[]
  readonly tools: ReadonlyMap<string, OfferedTool>
  /** Calls since the step began, in order. */
  readonly calls: readonly PastCall[]
}

const plannerMark = "You are Caisson's planner."
const agentMark = "You are Caisson's agent."
const workflowMark = 'You carry out one step of a workflow. Do what the messages say.'
/** Begins what the agent says of the form of an answer, behind the messages of a step. */
const formMark = 'When the step is done, answer with JSON alone,'

export function readConversation(request: CompletionRequest): PastConversation {
  const { messages } = request
  const system = contentText(messages.find((message) => message.role === 'system')?.content)
  const firstLine = system.split('\n', 1)[0]
  if (firstLine === workflowMark) return readWorkflowStep(request)
  const lastStart = messages.findIndex((message) => message.role === 'user')
  const user = messages[lastStart]
  const text = contentText(user?.content)
  const sections = readSections(text)
  const stage = firstLine === plannerMark ? 'plan' : firstLine === agentMark ? 'step' : 'other'
  return {
    stage,
    task: sections.get('task')?.[0] ?? (stage === 'other' ? text : ''),
    workspace: (sections.get('workspace')?.[0] ?? '').split('\n').filter((line) => line !== ''),
    instructions: sections.get('instructions')?.[0] ?? '',
    results: sections.get('result') ?? [],
    tools: readTools(request),
    calls: readCalls(messages.slice(lastStart + 1)),
  }
}

/** A step of a workflow file: its last user message is the task. It may continue the conversation of another step. */
function readWorkflowStep(request: CompletionRequest): PastConversation {
  const { messages } = request
  const lastStart = messages.findLastIndex((message) => message.role === 'user')
  const [said = ''] = contentText(messages[lastStart]?.content).split(formMark, 1)
  const task = said.trim()
  const rest = { workspace: [], results: [], tools: readTools(request) }
  return {
    stage: 'workflow',
    task,
    instructions: task,
    calls: readCalls(messages.slice(lastStart + 1)),
    ...rest,
  }
}

/** Texts of the blocks by tag. A block ends at its closing tag alone on a line, which its text cannot contain. */
function readSections(text: string): Map<string, string[]> {
  const sections = new Map<string, string[]>()
  let tag: string | null = null
  let lines: string[] = []
  for (const line of text.split('\n')) {
    if (tag === null) {
      tag = /^<([a-z]+)(?: [^>]*)?>$/.exec(line)?.[1] ?? null
      lines = []
    } else if (line === `</${tag}>`) {
      const inner = lines.join('\n').replaceAll(new RegExp(`<\\\\/(?=${tag}\\b)`, 'gi'), '</')
      sections.set(tag, [...(sections.get(tag) ?? []), inner])
      tag = null
    } else lines.push(line)
  }
  return sections
}

function readTools(request: CompletionRequest): Map<string, OfferedTool> {
  const tools = (request.tools ?? []).map(({ function: { name, parameters } }) => {
    const properties = parameters?.properties
    const names = typeof properties === 'object' && properties !== null ? Object.keys(properties) : []
    return [name, { name, parameters: names }] as const
  })
  return new Map(tools)
}

function readCalls(messages: CompletionRequest['messages']): PastCall[] {
  const names = new Map<string, string>()
  const calls: PastCall[] = []
  for (const message of messages) {
    if (message.role === 'assistant') {
      for (const call of message.tool_calls ?? []) names.set(call.id, call.function.name)
    } else if (message.role === 'tool') {
      const name = names.get(message.tool_call_id) ?? ''
      calls.push({ name, output: message.content, errorCode: readErrorCode(message.content) })
    }
  }
  return calls
}

/** The registry reports a failure as `Error (CODE): …`, and invalid arguments as a JSON artifact. */
function readErrorCode(output: string): string | null {
  const code = /^Error \(([a-z_]{1,40})\):/.exec(output)?.[1]
  if (code !== undefined) return code
  return output.includes('"tool_parameter_validation_failed"') && output.startsWith('{"ok":false')
    ? 'invalid_input'
    : null
}
