/** The time slider of an ended run: log, plan and figures show the run as it was at a line of its journal. */
import { useEffect, useState } from 'preact/hooks'
import { clock } from '../parts/text.ts'
import type { RunHistory } from './history.ts'

/** A whole replay has this many steps, each so long. */
const playSteps = 120
const playStepMs = 120

export function ReplayBar({
  history,
  position,
  onMove,
}: {
  readonly history: RunHistory
  /** Lines that are shown; undefined: all. */
  readonly position: number | undefined
  readonly onMove: (position: number | undefined) => void
}) {
  const [isPlaying, setPlaying] = useState(false)
  const total = history.length
  const shown = position ?? total
  useEffect(() => {
    if (!isPlaying) return
    const timer = setTimeout(() => {
      const next = shown + Math.max(1, Math.round(total / playSteps))
      if (next >= total) setPlaying(false)
      onMove(next >= total ? undefined : next)
    }, playStepMs)
    return () => clearTimeout(timer)
  }, [isPlaying, shown, total])
  const at = history.lineAt(shown)?.at
  return (
    <section class="replay card" aria-label="Replay">
      <button
        type="button"
        onClick={() => {
          if (!isPlaying && position === undefined) onMove(1)
          setPlaying(!isPlaying)
        }}
      >
        {isPlaying ? 'Pause replay' : 'Replay'}
      </button>
      <input
        type="range"
        aria-label="Moment of the run"
        aria-valuetext={`event ${shown} of ${total}${at === undefined ? '' : `, ${clock(at)}`}`}
        min={1}
        max={Math.max(1, total)}
        value={shown}
        onInput={({ currentTarget }) => {
          setPlaying(false)
          const next = Number(currentTarget.value)
          onMove(next >= total ? undefined : next)
        }}
      />
      <span class="hint replay-at">
        {at === undefined ? '' : clock(at)} · event {shown} of {total}
      </span>
      {position !== undefined && (
        <button
          type="button"
          onClick={() => {
            setPlaying(false)
            onMove(undefined)
          }}
        >
          To the end
        </button>
      )}
    </section>
  )
}
