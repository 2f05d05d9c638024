/** Figures of a run beside their limits: time, tokens, cost, and what its VM uses. */
import type { ComponentChildren } from 'preact'
import type { RunState } from '#specs/protocol/run-state.ts'
import { Meter } from '../parts/parts.tsx'
import { bytes, count, dollars, duration, tokens } from '../parts/text.ts'
import type { RunHistory } from './history.ts'
import type { RunLive } from './live.ts'

export interface FiguresProps {
  readonly history: RunHistory
  readonly state: RunState
  readonly live: RunLive
  /** Time of the moment that is shown. */
  readonly now: number
  readonly showsLive: boolean
}

export function Figures({ history, state, live, now, showsLive }: FiguresProps) {
  const limits = history.start?.limits
  const used = state.usage.inputTokens + state.usage.outputTokens
  const { use } = live
  return (
    <dl class="figures">
      <Figure
        name="Time"
        value={duration(Math.max(0, now - history.startedAt))}
        note={timeNote(live, showsLive, now)}
      />
      <Figure
        name="Tokens"
        value={`${state.isUsageEstimated ? '≈ ' : ''}${tokens(used)}`}
        note={limits === undefined ? '' : `of ${tokens(limits.maxTokens)}`}
      >
        {limits !== undefined && (
          <Meter
            label="Tokens used"
            value={used}
            max={limits.maxTokens}
            text={`${used} of ${limits.maxTokens} tokens`}
          />
        )}
      </Figure>
      <Figure
        name="Cost"
        value={state.costUsd === null ? '–' : dollars(state.costUsd)}
        note={costNote(state.costUsd, limits?.maxCostUsd)}
      >
        {limits?.maxCostUsd !== undefined && state.costUsd !== null && (
          <Meter
            label="Cost"
            value={state.costUsd}
            max={limits.maxCostUsd}
            text={`${dollars(state.costUsd)} of ${dollars(limits.maxCostUsd)}`}
          />
        )}
      </Figure>
      <Figure
        name="Tool calls"
        value={state.toolCalls.toLocaleString('en')}
        note={`${count(state.usage.requests, 'model request')}`}
      />
      {showsLive && use !== null && (
        <>
          <Figure name="Memory" value={bytes(use.memoryBytes)} note={`of ${bytes(use.memoryMaxBytes)}`}>
            <Meter
              label="Memory of the VM"
              value={use.memoryBytes}
              max={use.memoryMaxBytes}
              text={`${bytes(use.memoryBytes)} of ${bytes(use.memoryMaxBytes)}`}
            />
          </Figure>
          <Figure
            name="Processor"
            value={`${Math.round(use.cpuPercent ?? 0)} %`}
            note={`${bytes(use.diskBytes)} on disk`}
          >
            <Sparkline values={live.cpu} />
          </Figure>
        </>
      )}
    </dl>
  )
}

function Figure({
  name,
  value,
  note,
  children,
}: {
  readonly name: string
  readonly value: string
  readonly note: string
  readonly children?: ComponentChildren
}) {
  return (
    <div class="figure">
      <dt>{name}</dt>
      <dd>
        <span class="figure-value">{value}</span> <span class="hint">{note}</span>
        {children}
      </dd>
    </div>
  )
}

function costNote(cost: number | null, max: number | undefined): string {
  if (max !== undefined) return `of ${dollars(max)}`
  return cost === null ? 'no price is known' : ''
}

function timeNote({ timeLeft }: RunLive, showsLive: boolean, now: number): string {
  if (!showsLive || timeLeft === null) return ''
  const { remainingMs, at, stoppedBy } = timeLeft
  if (stoppedBy !== undefined) return `clock stopped`
  return `${duration(Math.max(0, remainingMs - (now - at)))} left`
}

function Sparkline({ values }: { readonly values: readonly number[] }) {
  const max = Math.max(100, ...values)
  const points = values.map((value, index) => `${index},${(16 - (value / max) * 15).toFixed(1)}`)
  return (
    <svg
      class="sparkline"
      viewBox={`0 0 ${Math.max(2, values.length - 1)} 16`}
      preserveAspectRatio="none"
      aria-hidden="true"
    >
      {points.length > 1 && <polyline points={points.join(' ')} />}
    </svg>
  )
}
