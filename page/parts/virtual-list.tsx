/**
 * A long list of rows of any height: only those near the visible part are in the document, so that a run of two hundred
 * thousand events is as light as one of ten.
 */
import type { ComponentChildren, TargetedKeyboardEvent } from 'preact'
import { useLayoutEffect, useRef, useState } from 'preact/hooks'

const estimatedHeight = 40
/** Pixels above and below the visible part that have rows too. */
const overscan = 600
/** From the end: so near, the list follows new rows. */
const followWithin = 48

export interface VirtualListProps<T> {
  readonly label: string
  readonly items: readonly T[]
  readonly keyOf: (item: T) => string
  readonly render: (item: T) => ComponentChildren
  /** Shown behind the last row. */
  readonly footer?: ComponentChildren
  /** Whether the end stays in sight while rows come. */
  readonly follows: boolean
}

export function VirtualList<T>({ label, items, keyOf, render, footer, follows }: VirtualListProps<T>) {
  const box = useRef<HTMLDivElement>(null)
  const heights = useRef(new Map<string, number>())
  const placed = useRef<Placed<T>>({ items: [], offsets: new Float64Array(1), count: 0 })
  const isAtEnd = useRef(true)
  const lastTop = useRef(0)
  const [view, setView] = useState({ top: 0, height: 800 })
  const [, measure] = useState(0)

  placed.current = place(placed.current, items, (item) => heights.current.get(keyOf(item)) ?? estimatedHeight)
  const offsets = placed.current.offsets.subarray(0, items.length + 1)
  const total = offsets[items.length] ?? 0
  const first = firstBehind(offsets, view.top - overscan)
  const last = Math.min(items.length, firstBehind(offsets, view.top + view.height + overscan) + 1)

  const look = () => {
    const { current } = box
    if (current === null) return
    const { scrollTop: top, clientHeight: height } = current
    setView((before) => (before.top === top && before.height === height ? before : { top, height }))
  }

  /** Takes the heights of the rows in the document; those behind a new one have other places. */
  const note = (list: HTMLElement) => {
    const changed = remember(list, heights.current)
    if (changed === undefined) return
    placed.current = { ...placed.current, count: Math.min(placed.current.count, changed) }
    measure((number) => number + 1)
  }

  useLayoutEffect(() => {
    const { current } = box
    if (current === null) return
    const observer = new ResizeObserver(() => {
      note(current)
      look()
    })
    observer.observe(current)
    for (const row of current.querySelectorAll('[data-key]')) observer.observe(row)
    note(current)
    return () => observer.disconnect()
  }, [first, last, items])

  useLayoutEffect(() => {
    const { current } = box
    if (current === null || !follows || !isAtEnd.current) return
    current.scrollTop = current.scrollHeight
    look()
  })

  /** At once: the scroll animation of the browser would render very many rows on its way. */
  const jump = (event: TargetedKeyboardEvent<HTMLElement>) => {
    const { key, target, currentTarget: list, altKey, ctrlKey, metaKey, shiftKey } = event
    if (target !== list || altKey || ctrlKey || metaKey || shiftKey) return
    if (key !== 'Home' && key !== 'End') return
    event.preventDefault()
    isAtEnd.current = key === 'End'
    list.scrollTop = isAtEnd.current ? list.scrollHeight : 0
    look()
  }

  return (
    <section
      ref={box}
      class="virtual"
      aria-label={label}
      // biome-ignore lint/a11y/noNoninteractiveTabindex: a part that scrolls must be reachable by the keyboard.
      tabIndex={0}
      onKeyDown={jump}
      onScroll={({ currentTarget: { scrollTop, scrollHeight, clientHeight } }) => {
        // A list that grows is not at its end either; only who scrolls up leaves it.
        if (scrollHeight - scrollTop - clientHeight < followWithin) isAtEnd.current = true
        else if (scrollTop < lastTop.current) isAtEnd.current = false
        lastTop.current = scrollTop
        look()
      }}
    >
      {items.length > 0 && (
        <ol
          style={{
            paddingTop: `${offsets[first] ?? 0}px`,
            paddingBottom: `${total - (offsets[last] ?? 0)}px`,
          }}
        >
          {items.slice(first, last).map((item, index) => (
            <li
              key={keyOf(item)}
              data-key={keyOf(item)}
              aria-posinset={first + index + 1}
              aria-setsize={items.length}
            >
              {render(item)}
            </li>
          ))}
        </ol>
      )}
      {footer}
    </section>
  )
}

/** Where the rows begin: known for the first `count` of the items, so that a list that grows is not measured anew. */
interface Placed<T> {
  readonly items: readonly T[]
  readonly offsets: Float64Array
  readonly count: number
}

function place<T>(before: Placed<T>, items: readonly T[], heightOf: (item: T) => number): Placed<T> {
  let count = 0
  const mostKnown = Math.min(before.count, items.length)
  while (count < mostKnown && before.items[count] === items[count]) count += 1
  let { offsets } = before
  if (offsets.length <= items.length) {
    offsets = new Float64Array(2 * items.length + 1)
    offsets.set(before.offsets)
  }
  for (const item of items.slice(count)) {
    offsets[count + 1] = (offsets[count] ?? 0) + heightOf(item)
    count += 1
  }
  return { items, offsets, count }
}

/** Notes the heights of the rows in the document. @returns position of the first one that is new; undefined: none is */
function remember(box: HTMLElement, heights: Map<string, number>): number | undefined {
  let first: number | undefined
  for (const row of box.querySelectorAll<HTMLElement>('[data-key]')) {
    const key = row.dataset.key ?? ''
    const height = row.offsetHeight
    if (height <= 0 || heights.get(key) === height) continue
    heights.set(key, height)
    first ??= Number(row.getAttribute('aria-posinset')) - 1
  }
  return first
}

/** Position of the row at a height. */
function firstBehind(offsets: Float64Array, height: number): number {
  let low = 0
  let high = offsets.length - 1
  while (low < high) {
    const middle = (low + high) >> 1
    if ((offsets[middle + 1] ?? Number.POSITIVE_INFINITY) <= height) low = middle + 1
    else high = middle
  }
  return low
}
