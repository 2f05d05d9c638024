/** Small parts that several views share. */
import type { ComponentChildren } from 'preact'
import { useEffect, useRef, useState } from 'preact/hooks'
import { useSession } from '../session/session.ts'
import { visible, visibleLine } from './text.ts'

const tones: Readonly<Record<string, string>> = {
  running: 'live',
  waiting: 'ask',
  sleeping: 'quiet',
  interrupted: 'warn',
  damaged: 'bad',
  completed: 'good',
  failed: 'bad',
  cancelled: 'quiet',
  pending: 'quiet',
  skipped: 'quiet',
  paused: 'warn',
  queued: 'quiet',
}

/** The status of a run, a step or a sub-agent: a word, with a dot of its color. */
export function Status({ status }: { readonly status: string }) {
  return (
    <span class={`status tone-${tones[status] ?? 'quiet'}`}>
      <span class="dot" aria-hidden="true" />
      {visibleLine(status.charAt(0).toUpperCase() + status.slice(1), 40)}
    </span>
  )
}

/** Untrusted text on several lines. */
export function Untrusted({ text, class: name = '' }: { readonly text: string; readonly class?: string }) {
  return <pre class={`untrusted ${name}`}>{visible(text)}</pre>
}

/** A button that does something at the service: it is busy until that is done, and shows why it failed. */
export function ActionButton({
  run,
  children,
  class: name = '',
  disabled = false,
  ...rest
}: {
  readonly run: () => Promise<unknown>
  readonly children: ComponentChildren
  readonly class?: string
  readonly disabled?: boolean
  readonly 'aria-label'?: string
}) {
  const { fail } = useSession()
  const [isBusy, setBusy] = useState(false)
  const [error, setError] = useState<string>()
  const isGone = useRef(false)
  useEffect(
    () => () => {
      isGone.current = true
    },
    [],
  )
  const act = async () => {
    setBusy(true)
    setError(undefined)
    try {
      await run()
    } catch (thrown) {
      const text = fail(thrown)
      if (!isGone.current) setError(text)
    } finally {
      if (!isGone.current) setBusy(false)
    }
  }
  return (
    <>
      <button
        {...rest}
        type="button"
        class={name}
        disabled={disabled}
        aria-busy={isBusy}
        onClick={() => {
          if (!isBusy) void act()
        }}
      >
        {children}
      </button>
      {error !== undefined && <Failure text={error} />}
    </>
  )
}

export function Failure({ text }: { readonly text: string }) {
  return (
    <p class="failure" role="alert">
      {visible(text)}
    </p>
  )
}

/** How much of a budget is used. */
export function Meter({
  label,
  value,
  max,
  text,
}: {
  readonly label: string
  readonly value: number
  readonly max: number
  readonly text: string
}) {
  const part = max > 0 ? Math.min(1, value / max) : 0
  const tone = part >= 0.9 ? 'bad' : part >= 0.7 ? 'warn' : 'plain'
  return (
    // biome-ignore lint/a11y/useSemanticElements: browsers do not let style a meter element alike.
    <div
      class={`meter meter-${tone}`}
      role="meter"
      aria-label={label}
      aria-valuemin={0}
      aria-valuemax={max}
      aria-valuenow={Math.min(value, max)}
      aria-valuetext={text}
    >
      <span style={{ width: `${(part * 100).toFixed(1)}%` }} />
    </div>
  )
}

export interface Tab<T extends string> {
  readonly id: T
  readonly label: string
  readonly count?: number | undefined
}

/** Tabs by the pattern of the ARIA guide: arrows move between them. */
export function Tabs<T extends string>({
  label,
  tabs,
  current,
  onChange,
}: {
  readonly label: string
  readonly tabs: readonly Tab<T>[]
  readonly current: T
  readonly onChange: (id: T) => void
}) {
  const move = (event: KeyboardEvent) => {
    const at = tabs.findIndex(({ id }) => id === current)
    const steps: Readonly<Record<string, number>> = {
      ArrowRight: at + 1,
      ArrowLeft: at - 1,
      Home: 0,
      End: tabs.length - 1,
    }
    const to = steps[event.key]
    if (to === undefined) return
    event.preventDefault()
    const next = tabs[(to + tabs.length) % tabs.length]
    if (next === undefined) return
    onChange(next.id)
    document.getElementById(`tab-${next.id}`)?.focus()
  }
  return (
    <div class="tabs" role="tablist" aria-label={label} onKeyDown={move}>
      {tabs.map(({ id, label: name, count }) => (
        <button
          key={id}
          type="button"
          role="tab"
          id={`tab-${id}`}
          aria-selected={id === current}
          aria-controls="tab-panel"
          tabIndex={id === current ? 0 : -1}
          onClick={() => onChange(id)}
        >
          {name}
          {count !== undefined && count > 0 && <span class="count">{count}</span>}
        </button>
      ))}
    </div>
  )
}

/** A modal dialog of the browser: it keeps the focus, and Escape closes it. */
export function Dialog({
  title,
  onClose,
  children,
}: {
  readonly title: string
  readonly onClose: () => void
  readonly children: ComponentChildren
}) {
  const ref = useRef<HTMLDialogElement>(null)
  useEffect(() => {
    ref.current?.showModal()
  }, [])
  return (
    <dialog ref={ref} aria-labelledby="dialog-title" onClose={onClose}>
      <header class="dialog-head">
        <h2 id="dialog-title">{title}</h2>
        <button type="button" class="plain" aria-label="Close" onClick={() => ref.current?.close()}>
          ✕
        </button>
      </header>
      {children}
    </dialog>
  )
}

/** Focuses its heading when the view appears, so that a screen reader begins there. */
export function useViewHeading(title: string) {
  const ref = useRef<HTMLHeadingElement>(null)
  useEffect(() => {
    document.title = title === '' ? 'Caisson' : `${visibleLine(title, 80)} · Caisson`
  }, [title])
  useEffect(() => {
    ref.current?.focus({ preventScroll: true })
  }, [])
  return ref
}

/** The time, renewed every so often while the view is there. */
export function useNow(everyMs: number, isOn = true): number {
  const [now, setNow] = useState(Date.now())
  useEffect(() => {
    if (!isOn) return
    const timer = setInterval(() => setNow(Date.now()), everyMs)
    return () => clearInterval(timer)
  }, [everyMs, isOn])
  return now
}
