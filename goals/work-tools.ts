/**
 * The tools of a goal without a VM: those for tasks (`math`, `web_search`, `governance_note`), the application's, and
 * those of `caisson/runtime` that were chosen. What may change something is asked about first.
 */
import {
  type BuiltInName,
  executeTool,
  type LLMEnvironment,
  type LLMTool,
  type LLMToolCall,
  reservedToolNames,
} from '#runtime/index.ts'
import { CaissonError, errorMessage } from '#specs/errors.ts'
import {
  GovernanceNoteInput,
  governanceNoteDescription,
  renderNotes,
} from '#specs/node/task-tools/governance-note.ts'
import { MathInput, mathDescription, renderMath, workOut } from '#specs/node/task-tools/math.ts'
import {
  renderSearch,
  WebSearchInput,
  webSearchDescription,
  webSearchTrust,
} from '#specs/node/task-tools/web-search.ts'
import { describeOutput, type TraceEntry } from '#specs/service/task-resources.ts'
import { HostToolError } from '../host/index.ts'
import {
  type GoalNotes,
  type GoalSearch,
  newRunId,
  type PreparedTool,
  prepareHostTools,
} from '../host/without-vm.ts'
import { type Goal, requireLoaded } from './goal.ts'

/** Offered without being named, where there is a workspace. */
const reading: readonly BuiltInName[] = ['read_file', 'list_files', 'grep']
/** Offered when they are named. */
const named: readonly BuiltInName[] = [...reading, 'write_file', 'shell_cmd', 'web_fetch']
const withoutWorkspace: ReadonlySet<string> = new Set<BuiltInName>(['web_fetch'])
/** Of a call that says none. */
const defaultTimeoutMs = 60_000

interface Services {
  readonly search: GoalSearch
  readonly notes: GoalNotes
}

/** Why a call failed, with a code for the model. */
class CallFailure extends Error {
  readonly code: string

  constructor(code: string, message: string) {
    super(message)
    this.code = code
  }
}

export class WorkTools {
  readonly trace: TraceEntry[] = []
  /** For the request to the model. */
  readonly offered: {
    readonly tools: Readonly<Record<string, LLMTool>>
    readonly builtIns: Readonly<Partial<Record<BuiltInName, boolean>>>
    readonly workingDirectory?: string
  }
  readonly #job: Goal
  readonly #prepared: ReadonlyMap<string, PreparedTool>
  /** Calls of our tools that failed, by the id of the call. */
  readonly #failures = new Map<string, CallFailure>()
  readonly #runId = newRunId()

  /** @throws {CaissonError} `invalid_options` for a tool that there is not, or that cannot be offered */
  constructor(job: Goal, services: Services) {
    requireLoaded(job)
    const { agent, given, options } = job
    this.#job = job
    this.#prepared = prepareHostTools(given.tools)
    const own = { ...this.#forTasks(services), ...this.#ofApplication() }
    const clash = Object.keys(own).find((name) => (reservedToolNames as readonly string[]).includes(name))
    if (clash !== undefined)
      throw new CaissonError('invalid_options', `the tool ${clash} has the name of a tool of caisson/runtime`)
    const { workspace } = agent
    const possible = named.filter((name) => workspace !== undefined || withoutWorkspace.has(name))
    const wanted = options.tools ?? [
      ...Object.keys(own),
      ...reading.filter((name) => possible.includes(name)),
    ]
    for (const name of wanted) requireTool(name, [...Object.keys(own), ...possible])
    this.offered = {
      tools: Object.fromEntries(Object.entries(own).filter(([name]) => wanted.includes(name))),
      builtIns: Object.fromEntries(
        possible.filter((name) => wanted.includes(name)).map((name) => [name, true]),
      ),
      ...(workspace === undefined ? {} : { workingDirectory: workspace }),
    }
  }

  /** Carries a call out and adds it to the trace. @returns the result for the model */
  async call(environment: LLMEnvironment, call: LLMToolCall, signal: AbortSignal): Promise<string> {
    const { name, arguments: written } = call.function
    const entry = {
      step: this.trace.length + 1,
      tool: name.slice(0, 500),
      input: parse(written) ?? { text: written },
      timestamp: new Date().toISOString(),
    }
    this.trace.push({ ...entry, output: null, error: 'the goal ended before this call did' })
    const { ok, content } = await executeTool(environment, call, {
      ...this.offered,
      abortSignal: signal,
      toolPermission: 'ask',
      askPermission: (asked) => this.#mayRun(asked, signal),
    })
    const failure = this.#failures.get(call.id)
    const error =
      failure === undefined
        ? ok
          ? null
          : content.replace(/^Error: /, '')
        : `${failure.code}: ${failure.message}`
    this.trace[entry.step - 1] = {
      ...entry,
      output: error === null ? describeOutput(entry, content) : null,
      error,
    }
    return content
  }

  async #mayRun(
    { function: { name, arguments: given } }: LLMToolCall,
    signal: AbortSignal,
  ): Promise<boolean> {
    const prepared = this.#prepared.get(name)
    if (prepared === undefined) return await this.#isAllowed(name, given, given, signal)
    if (!prepared.asks) return true
    const read = prepared.readInput(JSON.parse(given))
    const preview = read.ok ? await prepared.definition.preview?.(read.value) : undefined
    return await this.#isAllowed(name, given, preview ?? given, signal)
  }

  /** A function that throws denies, as for a run. */
  async #isAllowed(tool: string, given: string, preview: string, signal: AbortSignal): Promise<boolean> {
    const { onApproval } = this.#job.agent
    try {
      return (await onApproval?.({ tool, arguments: given, preview }, { signal })) === 'allow'
    } catch (error) {
      this.#job.note([`the approval of ${tool} was denied: onApproval failed: ${errorMessage(error)}`])
      return false
    }
  }

  #forTasks({ search, notes }: Services): Record<string, LLMTool> {
    return {
      math: this.#tool(`${mathDescription}.`, MathInput, (input) => {
        const answer = workOut(MathInput.parse(input))
        if (!answer.ok) throw new CallFailure('invalid_input', answer.error)
        return renderMath(answer.value)
      }),
      web_search: this.#tool(
        `${webSearchDescription} ${webSearchTrust}`,
        WebSearchInput,
        async (input, { signal }) => {
          const answer = await search(WebSearchInput.parse(input), signal)
          if (!answer.ok) throw new CallFailure(answer.error.code, answer.error.message)
          return renderSearch(answer.value)
        },
      ),
      governance_note: this.#tool(
        `${governanceNoteDescription} An added note is kept when the task has it word for word; about any other the user is asked.`,
        GovernanceNoteInput,
        (input, { signal }) => this.#note(GovernanceNoteInput.parse(input), notes, signal),
      ),
    }
  }

  async #note(
    { action, proposalId, text = '' }: ReturnType<typeof GovernanceNoteInput.parse>,
    notes: GoalNotes,
    signal: AbortSignal,
  ): Promise<string> {
    if (action === 'list') {
      const listed = await notes.list(proposalId)
      if (!listed.ok) throw new CallFailure(listed.error.code, listed.error.message)
      return renderNotes(listed.value)
    }
    const given = JSON.stringify({ action, proposalId, text })
    const added = await notes.add({ proposalId, text }, () =>
      this.#isAllowed('governance_note', given, text, signal),
    )
    if (!added.ok) throw new CallFailure(added.error.code, added.error.message)
    const { noteId, isKept } = added.value
    if (!isKept)
      throw new CallFailure('denied', 'The note was denied: the task does not have it word for word.')
    return `Kept as ${noteId} for ${proposalId}.`
  }

  #ofApplication(): Record<string, LLMTool> {
    const tools = [...this.#prepared].map(([name, prepared]): [string, LLMTool] => {
      const { description, parameters, readOnly } = prepared.offer
      const tool = this.#tool(description, parameters, (input, context) =>
        this.#callApplication(prepared, input, context),
      )
      return [name, { ...tool, readOnly: false, destructive: !readOnly }]
    })
    return Object.fromEntries(tools)
  }

  async #callApplication(
    { definition, readInput }: PreparedTool,
    given: unknown,
    { toolCallId, signal }: { readonly toolCallId: string; readonly signal: AbortSignal },
  ): Promise<unknown> {
    const input = readInput(given)
    if (!input.ok) throw new CallFailure('invalid_input', `The arguments do not fit: ${input.error}.`)
    const { timeoutMs = defaultTimeoutMs } = definition
    const late = AbortSignal.timeout(timeoutMs)
    const ends = AbortSignal.any([signal, late])
    const context = { signal: ends, runId: this.#runId, agentPath: 'root', callId: toolCallId }
    const { promise: ended, reject } = Promise.withResolvers<never>()
    const end = () =>
      reject(late.aborted ? new CallFailure('timeout', `It took longer than ${timeoutMs} ms.`) : ends.reason)
    ends.addEventListener('abort', end, { once: true })
    try {
      return await Promise.race([(async () => await definition.execute(input.value, context))(), ended])
    } catch (error) {
      if (error instanceof HostToolError) throw new CallFailure(error.code, error.message)
      throw error
    } finally {
      ends.removeEventListener('abort', end)
    }
  }

  /** A tool whose failures are results: text with a code for the model, and an error in the trace. */
  #tool(
    description: string,
    parameters: LLMTool['parameters'],
    execute: NonNullable<LLMTool['execute']>,
  ): LLMTool {
    return {
      description,
      parameters,
      readOnly: true,
      execute: async (input, context) => {
        try {
          return await execute(input, context)
        } catch (error) {
          if (context.signal.aborted) throw error
          const failure = this.#failureOf(error)
          this.#failures.set(context.toolCallId, failure)
          return `Error (${failure.code}): ${failure.message}`
        }
      },
    }
  }

  /** Of what a tool throws besides, only the application gets the words. */
  #failureOf(error: unknown): CallFailure {
    if (error instanceof CallFailure) return error
    this.#job.note([`a tool failed: ${errorMessage(error)}`])
    return new CallFailure('internal', 'The tool failed.')
  }
}

/** @throws {CaissonError} `invalid_options` */
function requireTool(name: string, possible: readonly string[]): void {
  if (possible.includes(name)) return
  const needsWorkspace = (named as readonly string[]).includes(name)
  throw new CaissonError(
    'invalid_options',
    needsWorkspace
      ? `the tool ${name} needs a workspace`
      : `there is no tool ${JSON.stringify(name.slice(0, 100))} without a VM; there are: ${possible.toSorted().join(', ')}`,
    needsWorkspace ? { remedy: 'set the option workspace' } : {},
  )
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}
