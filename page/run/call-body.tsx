/** A tool call in the log: one line, and what it was given and did where it is unfolded. */
import { hasDiff } from '../changes/diff-rows.ts'
import { DiffView } from '../changes/diff-view.tsx'
import { Untrusted } from '../parts/parts.tsx'
import { bytes, duration, lastLines, mainArgument, prettyJson, visible, visibleLine } from '../parts/text.ts'
import type { EntryOf } from './history.ts'
import { type RunImages, Thumbnail } from './run-image.tsx'

export function CallBody({
  entry,
  limit,
  isOpen,
  onToggle,
  images,
  output,
}: {
  readonly entry: EntryOf<'call'>
  /** Line of the journal behind which nothing is shown. */
  readonly limit: number
  readonly isOpen: boolean
  readonly onToggle: (seq: number) => void
  readonly images: RunImages
  /** What it has written so far. */
  readonly output: string | undefined
}) {
  const { event } = entry
  const end = entry.end !== undefined && entry.end.seq <= limit ? entry.end.event : undefined
  const failed = end?.error !== undefined || (end?.exitCode ?? 0) !== 0
  const tone = end === undefined ? 'live' : failed ? 'bad' : 'good'
  return (
    <>
      <button type="button" class="plain call" aria-expanded={isOpen} onClick={() => onToggle(entry.seq)}>
        <span class={`dot tone-${tone}`} aria-hidden="true" />
        <span class="tool">{visibleLine(event.tool, 80)}</span>
        <span class="call-what">{callLine(event.tool, event.arguments)}</span>
        <span class="hint call-end">
          {end === undefined
            ? 'running'
            : `${failed ? (end.exitCode === undefined ? 'failed · ' : `exit ${end.exitCode} · `) : ''}${duration(end.durationMs)}`}
        </span>
      </button>
      {end?.image !== undefined && (
        <Thumbnail shown={{ name: callLine(event.tool, event.arguments), image: end.image }} {...images} />
      )}
      {end === undefined && output !== undefined && <Untrusted class="output" text={lastLines(output, 12)} />}
      {isOpen && (
        <div class="call-detail">
          <h4>Arguments</h4>
          <Untrusted text={prettyJson(event.arguments)} />
          {end?.diffs?.map((diff) => (
            <div key={diff.path}>
              <h4>
                {visible(diff.path)} <span class="plus">+{diff.added}</span>{' '}
                <span class="minus">−{diff.removed}</span>
              </h4>
              {diff.diff !== undefined && hasDiff(diff.diff) && <DiffView diff={diff.diff} />}
            </div>
          ))}
          {end !== undefined && (
            <>
              <h4>
                Output{' '}
                {end.cut !== undefined && <span class="hint">the beginning of {bytes(end.cut.bytes)}</span>}
              </h4>
              {end.error !== undefined && <p class="warning">{visible(end.error.message)}</p>}
              <Untrusted class="output" text={end.output === '' ? '(nothing)' : end.output} />
            </>
          )}
        </div>
      )}
    </>
  )
}

/** What a call does, in one line: its command, path or address. */
function callLine(tool: string, text: string): string {
  const main = mainArgument(text)
  if (main !== null) return visibleLine(main.value, 200)
  return tool === 'submit_plan' || text === '{}' ? '' : visibleLine(text, 200)
}
