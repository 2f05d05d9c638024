/** A unified diff as a table of lines; every line is text. */
import type { ComponentChildren } from 'preact'
import { useMemo, useState } from 'preact/hooks'
import { visible } from '../parts/text.ts'
import { type DiffHunk, diffHunks } from './diff-rows.ts'

const signs = { context: ' ', added: '+', removed: '-', note: ' ' } as const
/** Rows of a hunk that are drawn before somebody asks for more. */
const firstRows = 400

export function DiffView({
  diff,
  headOf,
}: {
  readonly diff: string
  /** What stands before a hunk, by its position. */
  readonly headOf?: (index: number, header: string) => ComponentChildren
}) {
  const hunks = useMemo(() => diffHunks(diff), [diff])
  return (
    <div class="diff">
      {hunks.map((hunk, index) => (
        <Hunk
          key={`${index} ${hunk.header}`}
          hunk={hunk}
          head={headOf?.(index, hunk.header) ?? visible(hunk.header)}
        />
      ))}
    </div>
  )
}

function Hunk({ hunk, head }: { readonly hunk: DiffHunk; readonly head: ComponentChildren }) {
  const [shown, setShown] = useState(firstRows)
  return (
    <>
      <div class="hunk-head">{head}</div>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: wide lines scroll, also by the keyboard. */}
      <section class="hunk" aria-label={`Lines ${visible(hunk.header)}`} tabIndex={0}>
        <table>
          <tbody>
            {hunk.rows.slice(0, shown).map((row, index) => (
              <tr key={index} class={row.kind}>
                <td class="line-number">{row.old}</td>
                <td class="line-number">{row.new}</td>
                <td class="sign">
                  {signs[row.kind]}
                  {row.kind !== 'context' && row.kind !== 'note' && (
                    <span class="visually-hidden">{row.kind === 'added' ? 'added: ' : 'removed: '}</span>
                  )}
                </td>
                <td class="line">{visible(row.text)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </section>
      {hunk.rows.length > shown && (
        <button type="button" class="more" onClick={() => setShown(shown + 10 * firstRows)}>
          Show {hunk.rows.length - shown} more lines
        </button>
      )}
    </>
  )
}
