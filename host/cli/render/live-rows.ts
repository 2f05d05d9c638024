/** What the live area below a run says: the end of what the model writes, sub-agents, what is waited for, and figures. */
import type { Delta, HostDelta } from '#specs/protocol/event.ts'
import type { ModelWait } from '#specs/protocol/model-request.ts'
import type { RunState } from '#specs/protocol/run-state.ts'
import { formatBytes, formatCost, formatCount } from '../../files/format.ts'
import type { FeedItem } from '../../journal/run-feed.ts'
import { nameOf } from './agent-lines.ts'
import type { Colors } from './colors.ts'
import { sanitizeBlock, sanitizeLine } from './sanitize.ts'

/** Rows of the text that the model writes. */
const textRows = 4
/** Characters of it that are kept. */
const textMax = 4_000
/** Sub-agents that have a row. */
const agentRows = 8
/** Paths that the row of changes names. */
const namesMax = 3

interface Writing {
  readonly kind: 'text' | 'reasoning' | 'arguments' | 'output'
  readonly key: string
  readonly text: string
}

interface SoFar {
  readonly count: string
  readonly flagged: string
  readonly names: string
}
const nothingSoFar: SoFar = { count: '', flagged: '', names: '' }

/** What deltas said last. They are lost with a session, so each is only status. */
export class LiveRows {
  /** What each agent writes, or the command that it runs, by its path. */
  readonly #writing = new Map<string, Writing>()
  readonly #waits = new Map<string, ModelWait>()
  #prepare = ''
  #retryAt = 0
  #context: { tokens: number; maxTokens: number } | undefined
  #timeLeft: { until: number; stopped: number | undefined } | undefined
  #changes: number | undefined
  #vm = ''
  /** What the run has changed so far, for one row; empty before a look found something. */
  #soFar: SoFar = nothingSoFar

  /** @param now ms since 1970 */
  take(item: FeedItem, now = Date.now()): void {
    if (item.source === 'delta') {
      this.#takeDelta(item.agentPath, item.delta)
      return
    }
    const { event } = item
    const agentPath = item.source === 'agent' ? item.agentPath : 'root'
    // A session ends while the VM is being saved, which takes longer.
    if (event.type !== 'session-end') this.#prepare = ''
    if (event.type === 'model-end') this.#waits.delete(event.requestId ?? '')
    if (event.type === 'turn-retry' || (event.type === 'model-retry' && event.delayMs > 0))
      this.#retryAt = now + event.delayMs
    if (['turn-end', 'turn-retry', 'tool-end', 'step-end', 'agent-end'].includes(event.type))
      this.#writing.delete(agentPath)
    if (event.type === 'turn-end' && agentPath === 'root') this.#context = event.context ?? this.#context
    if (event.type === 'changes-ready') {
      this.#changes = event.entries
      this.#soFar = nothingSoFar
    }
    if (event.type === 'run-end') this.#waits.clear()
  }

  #takeDelta(agentPath: string, delta: Delta | HostDelta): void {
    switch (delta.type) {
      case 'text-delta':
      case 'reasoning-delta':
      case 'arguments-delta': {
        const kind = delta.type.slice(0, -'-delta'.length) as 'text' | 'reasoning' | 'arguments'
        this.#write(agentPath, kind, `${delta.stepId} ${delta.turn}`, delta)
        return
      }
      case 'tool-output-delta':
        this.#write(agentPath, 'output', `${delta.callId} ${delta.stream}`, delta)
        return
      case 'turn-reset':
        this.#writing.delete(agentPath)
        return
      case 'model-wait':
        this.#waits.set(delta.requestId, delta)
        return
      case 'changes':
        this.#soFar = describeChanges(delta)
        return
      case 'prepare':
        this.#prepare = sanitizeLine(delta.text, 100)
        return
      case 'time-left':
        this.#timeLeft = {
          until: delta.at + delta.remainingMs,
          stopped: delta.stoppedBy === undefined ? undefined : delta.remainingMs,
        }
        return
      case 'vm-use':
        this.#vm = describeUse(delta)
        return
      default:
    }
  }

  #write(
    agentPath: string,
    kind: Writing['kind'],
    key: string,
    { text, offset }: { readonly text: string; readonly offset: number },
  ): void {
    const last = this.#writing.get(agentPath)
    const isSame = last?.key === key && last.kind === kind && offset !== 0
    this.#writing.set(agentPath, { kind, key, text: ((isSame ? last.text : '') + text).slice(-textMax) })
  }

  /** Rows above the status line. */
  above(state: RunState, colors: Colors): string[] {
    const agents = Object.entries(state.agents).filter(([, agent]) => agent.state === 'running')
    const rows = agents
      .slice(0, agentRows)
      .map(([path]) => `  ${colors.cyan(`[${nameOf(path)}]`)} ${colors.dim(this.#doing(path, state))}`)
    if (agents.length > agentRows) rows.push(colors.dim(`  … ${agents.length - agentRows} more`))
    const { count, flagged, names } = this.#soFar
    // What is flagged before the names: the row may be cut.
    if (count !== '')
      rows.push(
        `  ${colors.dim(`changed so far: ${count}`)}${flagged === '' ? '' : `, ${colors.yellow(flagged)}`}${colors.dim(` (${names})`)}`,
      )
    const root = this.#writing.get('root')
    if (root === undefined || !['text', 'output'].includes(root.kind) || root.key.startsWith('plan '))
      return rows
    const lines = root.text.trimEnd().split('\n').slice(-textRows).join('\n')
    return lines === '' ? rows : [...sanitizeBlock(lines, '    │ ').split('\n').map(colors.dim), ...rows]
  }

  /** What one agent does, in a few words. */
  #doing(path: string, state: RunState): string {
    const call = Object.values(state.openCalls).find(({ agentPath }) => agentPath === path)
    const writing = this.#writing.get(path)
    const line = writing?.text.trimEnd().split('\n').at(-1) ?? ''
    if (call !== undefined)
      return `${sanitizeLine(call.tool, 40)}${line === '' ? '' : ` │ ${sanitizeLine(line, 100)}`}`
    if (writing?.kind === 'text') return `│ ${sanitizeLine(line.slice(-100), 100)}`
    return writing === undefined ? 'waiting for the model' : wordsOf(writing.kind)
  }

  /** What the run waits for now. */
  hint(now = Date.now()): string {
    if (this.#prepare !== '') return this.#prepare
    if (this.#retryAt > now) return `retry in ${seconds(this.#retryAt - now)}`
    const root = this.#writing.get('root')
    if (root !== undefined) return wordsOf(root.kind)
    const wait = [...this.#waits.values()].at(-1)
    return wait === undefined ? '' : describeWait(wait, now)
  }

  /** Figures of the run, those that are known. */
  figures(state: RunState, isVerbose: boolean, now = Date.now()): string[] {
    const tokens = state.usage.inputTokens + state.usage.outputTokens
    const { tokens: used = 0, maxTokens = 0 } = this.#context ?? {}
    return [
      tokens === 0 ? '' : `${state.isUsageEstimated ? 'about ' : ''}${formatTokens(tokens)}`,
      state.costUsd === null || state.costUsd === 0 ? '' : formatCost(state.costUsd),
      maxTokens === 0 ? '' : `context ${Math.round((100 * used) / maxTokens)} %`,
      this.#changes === undefined || this.#changes === 0 ? '' : formatCount(this.#changes, 'change'),
      this.#timeWords(now),
      isVerbose ? this.#vm : '',
    ].filter((part) => part !== '')
  }

  #timeWords(now: number): string {
    if (this.#timeLeft === undefined) return ''
    const { until, stopped } = this.#timeLeft
    if (stopped !== undefined) return `${seconds(stopped)} left, clock stopped`
    return `${seconds(Math.max(0, until - now))} left`
  }
}

function describeChanges({ paths, isPartial }: Extract<HostDelta, { type: 'changes' }>): SoFar {
  if (paths.length === 0) return nothingSoFar
  const sum = (key: 'added' | 'removed') => paths.reduce((total, change) => total + (change[key] ?? 0), 0)
  const lines = paths.some(({ added }) => added !== undefined) ? `, +${sum('added')} −${sum('removed')}` : ''
  const names = paths.slice(0, namesMax).map(({ path }) => sanitizeLine(path, 40))
  const more = paths.length > namesMax ? ', …' : ''
  const flags = paths.filter((change) => change.flags !== undefined)
  const [flagged] = flags.map(({ path }) => sanitizeLine(path, 40))
  const count = `${isPartial ? 'at least ' : ''}${formatCount(paths.length, 'file')}`
  return {
    count: `${count}${lines}`,
    names: `${names.join(', ')}${more}`,
    flagged:
      flagged === undefined ? '' : `${flags.length} flagged: ${flagged}${flags.length > 1 ? ', …' : ''}`,
  }
}

function describeUse(use: Extract<HostDelta, { type: 'vm-use' }>): string {
  const { cpuPercent, memoryBytes, memoryMaxBytes, diskBytes } = use
  const cpu = cpuPercent === undefined ? '' : ` ${Math.round(cpuPercent)} % CPU,`
  return `VM${cpu} ${formatBytes(memoryBytes)} of ${formatBytes(memoryMaxBytes)}, ${formatBytes(diskBytes)} on disk`
}

function formatTokens(count: number): string {
  return count < 10_000 ? `${count} tokens` : `${Math.round(count / 1_000)}k tokens`
}

function wordsOf(kind: Writing['kind']): string {
  return { text: 'answering', reasoning: 'thinking', arguments: 'writing a call', output: 'running' }[kind]
}

/** Whole seconds: tenths that run are no calm sight. */
function seconds(ms: number): string {
  const whole = Math.ceil(ms / 1_000)
  return whole < 60 ? `${whole} s` : `${Math.floor(whole / 60)} min ${whole % 60} s`
}

/** What a model request waits for, for the status line. */
export function describeWait({ for: what, position, until }: ModelWait, now = Date.now()): string {
  const place = position === undefined || position === 1 ? '' : ` (number ${position})`
  const rest = until === undefined || until <= now ? '' : `, ${seconds(until - now)} more`
  switch (what) {
    case 'hook':
      return 'waiting for a hook'
    case 'budget':
      return 'waiting for budget that other requests reserve'
    case 'turn':
      return `waiting for other model requests${place}`
    case 'rate':
      return `waiting for the request rate${rest}${place}`
    case 'pause':
      return `waiting: the model server limits requests${rest}${place}`
    case 'answer':
      return 'waiting for the model'
    case 'rest':
      return 'receiving the answer'
  }
}
