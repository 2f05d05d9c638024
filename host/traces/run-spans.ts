/**
 * Folds the events of one run into spans, by the GenAI conventions of OpenTelemetry: `invoke_agent` for the run and each
 * sub-agent, `chat` for each model request, `execute_tool` for each call. Pure: times come from the events, and ids from
 * the run and its journal.
 */
import type { AgentEvent, HostEvent, JournalEvent } from '#specs/protocol/event.ts'
import { argumentsOf, type ContentFilter, inputOf, outputOf, resultOf } from './content.ts'
import { attributesOf, beginSpan, endSpan, type OpenSpan, OpenSpans, type SpanEnd } from './open-spans.ts'
import { RequestSpans, usageAttributes } from './request-spans.ts'
import { type Attributes, rootSpanIdOf, type TraceSpan, traceIdOf } from './span.ts'

type Of<E extends { type: string }, T extends E['type']> = Extract<E, { type: T }>
type AgentLine = Extract<JournalEvent, { source: 'agent' }>
type Place = Pick<JournalEvent, 'seq' | 'at'>

/** Name of the run's own agent. A sub-agent has the last part of its path. */
const rootAgent = 'caisson'

export class RunSpans {
  readonly #runId: string
  readonly #traceId: string
  readonly #filter: ContentFilter | undefined
  readonly #agents = new OpenSpans()
  readonly #calls = new OpenSpans()
  readonly #requests: RequestSpans
  /** The span of the run and what most of its other spans share; undefined before its first and after its last event. */
  #run: { readonly span: OpenSpan; readonly provider: string; readonly model: string } | undefined
  #lastAt = 0
  #costUsd: number | undefined
  /** Spans that were not traced because too many were open, or another one of the same name. */
  #untraced = 0

  /** @param filter for content. Absent: spans have none */
  constructor(runId: string, filter?: ContentFilter) {
    this.#runId = runId
    this.#traceId = traceIdOf(runId)
    this.#filter = filter
    this.#requests = new RequestSpans(this.#traceId, filter)
  }

  /** The spans that this event ends, children before their parents. The first event must be the run's first. */
  next(line: JournalEvent): TraceSpan[] {
    this.#lastAt = Math.max(this.#lastAt, line.at)
    if (line.event.type === 'run-start') this.#startRun(line.event, line)
    if (this.#run === undefined) return []
    return line.source === 'host' ? this.#nextOfHost(line.event, line) : this.#nextOfAgent(line)
  }

  /** Ends what is open: there are no more events, and the run's end is not among them. */
  interrupt(): TraceSpan[] {
    return this.#endRun({ endMs: this.#lastAt, error: 'interrupted' })
  }

  #nextOfHost(event: HostEvent, place: Place): TraceSpan[] {
    switch (event.type) {
      case 'model-start':
        return this.#startRequest(event, place)
      case 'model-retry':
        this.#requests.retry(event)
        return []
      case 'model-end':
        if (event.costUsd !== undefined) this.#costUsd = (this.#costUsd ?? 0) + event.costUsd
        return this.#requests.end(event, place.at)
      case 'run-resume':
        return this.#endOpen({ endMs: place.at, error: 'interrupted' })
      case 'run-end':
        return this.#endRun(this.#endOf(event, place.at))
      default:
        return []
    }
  }

  #nextOfAgent({ event, agentPath, ...place }: AgentLine): TraceSpan[] {
    switch (event.type) {
      case 'agent-start':
        this.#startAgent(event, agentPath, place)
        return []
      case 'agent-end':
        return this.#endAgent(event, agentPath, place.at)
      case 'tool-start':
        this.#startCall(event, agentPath, place)
        return []
      case 'tool-end':
        return this.#endCall(event, agentPath, place)
      case 'turn-end':
        return this.#requests.turnEnd(event, agentPath)
      case 'turn-retry':
        return this.#requests.turnRetry(event, agentPath)
      case 'step-end':
      case 'step-retry':
        return this.#requests.release(agentPath, event.stepId)
      default:
        return []
    }
  }

  #startRun(event: Of<HostEvent, 'run-start'>, { at }: Place): void {
    const { provider, model, continues, metadata = {} } = event
    const facts = Object.entries(metadata).map(([key, value]) => [`caisson.metadata.${key}`, value] as const)
    const attributes = {
      ...this.#shared('invoke_agent', { provider, model }),
      ...attributesOf({
        'gen_ai.agent.name': rootAgent,
        'caisson.run.continues': continues,
        ...Object.fromEntries(facts),
      }),
      ...inputOf(event.prompt, this.#filter),
    }
    const links =
      continues === undefined ? [] : [{ traceId: traceIdOf(continues), spanId: rootSpanIdOf(continues) }]
    const spanId = rootSpanIdOf(this.#runId)
    const span = {
      spanId,
      name: `invoke_agent ${rootAgent}`,
      kind: 'internal',
      startMs: at,
      attributes,
      links,
    } as const
    this.#run = { span, provider, model }
  }

  #endOf(event: Of<HostEvent, 'run-end'>, at: number): SpanEnd {
    const { outcome, reason, message, summary, usage } = event
    return {
      endMs: at,
      attributes: {
        ...usageAttributes(usage),
        ...attributesOf({ 'caisson.run.outcome': outcome, 'caisson.run.reason': reason }),
        ...outputOf(summary, this.#filter),
      },
      ...(outcome === 'completed' ? {} : { error: reason, message: this.#filter?.(message) }),
    }
  }

  /** Whatever is open ends with the run, and as the run did. */
  #endRun(end: SpanEnd): TraceSpan[] {
    if (this.#run === undefined) return []
    const { span } = this.#run
    this.#run = undefined
    const left = { endMs: end.endMs, error: end.error ?? 'interrupted' }
    const own = attributesOf({
      'caisson.cost_usd': this.#costUsd,
      'caisson.untraced_spans': this.#untraced === 0 ? undefined : this.#untraced,
    })
    return [
      ...this.#endOpen(left),
      endSpan(this.#traceId, span, { ...end, attributes: { ...end.attributes, ...own } }),
    ]
  }

  /** Everything but the run. */
  #endOpen(left: SpanEnd & { readonly error: string }): TraceSpan[] {
    return [
      ...this.#requests.endAll(left),
      ...this.#calls.takeAll().map((call) => endSpan(this.#traceId, call, left)),
      ...this.#agents.takeAll().map((agent) => endSpan(this.#traceId, agent, left)),
    ]
  }

  #startRequest(event: Of<HostEvent, 'model-start'>, place: Place): TraceSpan[] {
    const { agentPath = 'root', stepId, turn } = event
    // The provider of another model than the run's is not in the journal.
    const [operation, model] =
      event.model === undefined ? ['chat', event.stepModel ?? this.#run?.model] : ['embeddings', event.model]
    const isOwn = event.model === undefined && event.stepModel === undefined
    const provider = isOwn ? this.#run?.provider : undefined
    const span = this.#begin(place, {
      name: `${operation} ${model}`,
      kind: 'client',
      parentSpanId: this.#agentSpanId(agentPath),
      attributes: {
        ...this.#shared(operation ?? 'chat', { provider, model }),
        ...attributesOf({ 'caisson.step.id': stepId, 'caisson.turn': turn }),
      },
    })
    return this.#requests.start(event, span)
  }

  #startAgent(event: Of<AgentEvent, 'agent-start'>, agentPath: string, place: Place): void {
    const at = agentPath.lastIndexOf('/')
    // The root agent's span is the run's.
    if (at < 0) return
    const name = agentPath.slice(at + 1)
    const span = this.#begin(place, {
      name: `invoke_agent ${name}`,
      kind: 'internal',
      parentSpanId: this.#agentSpanId(agentPath.slice(0, at)),
      attributes: {
        ...this.#shared('invoke_agent', this.#run ?? {}),
        ...attributesOf({
          'gen_ai.agent.name': name,
          'caisson.agent.path': agentPath,
          'caisson.step.id': event.stepId,
        }),
        ...inputOf(event.brief, this.#filter),
      },
    })
    this.#count(this.#agents.add(agentPath, span))
  }

  /** Also ends what the sub-agent left open. */
  #endAgent(event: Of<AgentEvent, 'agent-end'>, agentPath: string, at: number): TraceSpan[] {
    const error = event.state === 'completed' ? undefined : event.reason
    const isBelow = (path: string): boolean => path === agentPath || path.startsWith(`${agentPath}/`)
    const left = { endMs: at, error: error ?? 'interrupted' }
    const agent = this.#agents.take(agentPath)
    const attributes = { ...usageAttributes(event.usage), ...outputOf(event.text, this.#filter) }
    return [
      ...this.#requests.release(agentPath),
      ...this.#calls
        .takeAll((_, key) => isBelow(key.slice(0, key.indexOf('\n'))))
        .map((call) => endSpan(this.#traceId, call, left)),
      ...this.#agents.takeAll((_, path) => isBelow(path)).map((below) => endSpan(this.#traceId, below, left)),
      ...(agent === undefined ? [] : [endSpan(this.#traceId, agent, { endMs: at, attributes, error })]),
    ]
  }

  #startCall(event: Of<AgentEvent, 'tool-start'>, agentPath: string, place: Place): void {
    const content = argumentsOf(event.arguments, this.#filter)
    this.#count(this.#calls.add(callKey(event, agentPath), this.#beginCall(event, agentPath, place, content)))
  }

  #endCall(event: Of<AgentEvent, 'tool-end'>, agentPath: string, place: Place): TraceSpan[] {
    // A call that was refused before it began has no start.
    const call =
      this.#calls.take(callKey(event, agentPath)) ??
      this.#beginCall(event, agentPath, { ...place, at: Math.max(0, place.at - event.durationMs) }, {})
    const attributes = {
      ...attributesOf({ 'process.exit.code': event.exitCode, 'caisson.process.signal': event.signal }),
      ...resultOf(event.output, this.#filter),
    }
    return [endSpan(this.#traceId, call, { endMs: place.at, attributes, error: event.error?.code })]
  }

  #beginCall(
    {
      tool,
      callId,
      stepId,
      parentCallId = '',
    }: Pick<Of<AgentEvent, 'tool-start'>, 'tool' | 'callId' | 'stepId' | 'parentCallId'>,
    agentPath: string,
    place: Place,
    content: Attributes,
  ): OpenSpan {
    const attributes = attributesOf({
      'gen_ai.operation.name': 'execute_tool',
      'gen_ai.conversation.id': this.#runId,
      'gen_ai.tool.name': tool,
      'gen_ai.tool.call.id': callId,
      'gen_ai.tool.type': 'function',
      'caisson.step.id': stepId,
    })
    return this.#begin(place, {
      name: `execute_tool ${tool}`,
      kind: 'internal',
      parentSpanId:
        this.#calls.get(callKey({ callId: parentCallId }, agentPath))?.spanId ?? this.#agentSpanId(agentPath),
      attributes: { ...attributes, ...content },
    })
  }

  #begin(
    { seq, at }: Place,
    span: Pick<OpenSpan, 'name' | 'kind' | 'attributes'> & { readonly parentSpanId: string },
  ): OpenSpan {
    return beginSpan({ runId: this.#runId, seq, at }, span)
  }

  #shared(
    operation: string,
    of: { readonly provider?: string | undefined; readonly model?: string | undefined },
  ): Attributes {
    return attributesOf({
      'gen_ai.operation.name': operation,
      'gen_ai.provider.name': of.provider,
      'gen_ai.request.model': of.model,
      'gen_ai.conversation.id': this.#runId,
    })
  }

  /** Of the agent that an event names, or of the nearest above it that is traced; the run's in the end. */
  #agentSpanId(agentPath: string): string {
    for (let path = agentPath; path.includes('/'); path = path.slice(0, path.lastIndexOf('/'))) {
      const agent = this.#agents.get(path)
      if (agent !== undefined) return agent.spanId
    }
    return rootSpanIdOf(this.#runId)
  }

  #count(isTraced: boolean): void {
    if (!isTraced) this.#untraced += 1
  }
}

function callKey({ callId }: { readonly callId: string }, agentPath: string): string {
  return `${agentPath}\n${callId}`
}
