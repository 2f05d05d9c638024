/** A unified diff as a table of lines; every line is text. */
import type { ComponentChildren, RefObject } from 'preact'
import { useEffect, useMemo, useRef, useState } from 'preact/hooks'
import { visible } from '../parts/text.ts'
import { type DiffHunk, type DiffRow, diffHunks } from './diff-rows.ts'
import type { AskedLine } from './why.ts'

const signs = { context: ' ', added: '+', removed: '-', note: ' ' } as const
/** Rows of a hunk that are drawn before somebody asks for more. */
const firstRows = 400

export function DiffView({
  diff,
  headOf,
  onWhy,
}: {
  readonly diff: string
  /** Asks why a changed line is there. Absent: nothing can be asked. */
  readonly onWhy?: (line: AskedLine) => void
  /** What stands before a hunk, by its position. */
  readonly headOf?: (index: number, header: string) => ComponentChildren
}) {
  const hunks = useMemo(() => diffHunks(diff), [diff])
  const root = useRef<HTMLDivElement>(null)
  const why = useWhyKeys(root, hunks)
  return (
    <div class="diff" ref={root} {...(onWhy === undefined ? {} : { onKeyDown: why.move })}>
      {hunks.map((hunk, index) => (
        <Hunk
          key={`${index} ${hunk.header}`}
          hunk={hunk}
          head={headOf?.(index, hunk.header) ?? visible(hunk.header)}
          {...(onWhy === undefined ? {} : { ask: { current: why.current, focus: why.focus, onWhy } })}
        />
      ))}
    </div>
  )
}

/** One tab stop for the changed lines of a file: arrows, Home and End move between them. */
function useWhyKeys(root: RefObject<HTMLDivElement | null>, hunks: readonly DiffHunk[]) {
  const first = hunks.flatMap(({ rows }) => rows).find(isChanged)
  const [chosen, setChosen] = useState<string>()
  const move = (event: KeyboardEvent) => {
    const buttons = [...(root.current?.querySelectorAll<HTMLButtonElement>('.why') ?? [])]
    const at = buttons.findIndex((button) => button.isSameNode(event.target as Node))
    const targets: Readonly<Record<string, number>> = {
      ...{ ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: buttons.length - 1 },
    }
    const target = targets[event.key]
    if (at === -1 || target === undefined) return
    event.preventDefault()
    buttons[target]?.focus()
  }
  useEffect(() => setChosen(undefined), [hunks])
  return { current: chosen ?? (first === undefined ? undefined : keyOf(first)), focus: setChosen, move }
}

function isChanged({ kind }: DiffRow): boolean {
  return kind === 'added' || kind === 'removed'
}

function keyOf({ kind, old, new: now }: DiffRow): string {
  return `${kind} ${old ?? now ?? 0}`
}

interface Asking {
  /** The line that the tab key reaches. */
  readonly current: string | undefined
  readonly focus: (key: string) => void
  readonly onWhy: (line: AskedLine) => void
}

/** The sign of a line; of a changed one, a button that asks why. */
function Sign({ row, ask }: { readonly row: DiffRow; readonly ask?: Asking }) {
  const { kind, text } = row
  if (kind !== 'added' && kind !== 'removed') return <>{signs[kind]}</>
  const number = row.old ?? row.new ?? 0
  if (ask === undefined)
    return (
      <>
        {signs[kind]}
        <span class="visually-hidden">{kind}: </span>
      </>
    )
  return (
    <button
      type="button"
      class="plain why"
      title="Why?"
      aria-label={`${kind}, why line ${number}`}
      tabIndex={ask.current === keyOf(row) ? 0 : -1}
      onFocus={() => ask.focus(keyOf(row))}
      onClick={() => ask.onWhy({ kind, number, text })}
    >
      {signs[kind]}
    </button>
  )
}

function Hunk({
  hunk,
  head,
  ask,
}: {
  readonly hunk: DiffHunk
  readonly head: ComponentChildren
  readonly ask?: Asking
}) {
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
                  <Sign row={row} {...(ask === undefined ? {} : { ask })} />
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
