/** The log of a run: one row for each thing that happened, and what happens now behind the last. */
import { useCallback, useMemo, useState } from 'preact/hooks'
import type { Plan } from '#specs/protocol/plan.ts'
import { waitTool } from '#specs/protocol/tool-names.ts'
import { Untrusted } from '../parts/parts.tsx'
import {
  bytes,
  clock,
  count,
  dateTime,
  duration,
  lastLines,
  prettyJson,
  tokens,
  visible,
  visibleLine,
} from '../parts/text.ts'
import { VirtualList } from '../parts/virtual-list.tsx'
import { untilOf } from '../questions/question.ts'
import { CallBody } from './call-body.tsx'
import type { Entry, EntryOf, RunHistory } from './history.ts'
import type { RunLive } from './live.ts'
import type { Focus } from './plan-view.tsx'
import { ImageDialog, type RunImages, type ShownImage, Thumbnail } from './run-image.tsx'
import { labelOf } from './workflow-words.ts'

export interface LogProps {
  readonly run: string
  readonly history: RunHistory
  /** Absent in a replay. */
  readonly live?: RunLive
  readonly version: number
  /** Line of the journal behind which nothing is shown. Absent: all. */
  readonly until?: number
  readonly focus: Focus | undefined
}

export function Log({ run, history, live, version, until, focus }: LogProps) {
  const [text, setText] = useState('')
  const [open, setOpen] = useState<ReadonlySet<number>>(new Set())
  const [enlarged, setEnlarged] = useState<ShownImage>()
  const images: RunImages = { run, isLive: live !== undefined, onEnlarge: setEnlarged }
  const limit = until ?? Number.POSITIVE_INFINITY
  const items = useMemo(
    () =>
      history.entries.filter((entry) => entry.seq <= limit && fits(entry, focus) && contains(entry, text)),
    [history, version, limit, focus, text],
  )
  const toggle = useCallback((seq: number) => {
    setOpen((before) => {
      const after = new Set(before)
      if (!after.delete(seq)) after.add(seq)
      return after
    })
  }, [])
  return (
    <div class="log card">
      <div class="log-bar">
        <label class="grow">
          <span class="visually-hidden">Filter the log</span>
          <input
            type="search"
            placeholder="Filter the log"
            value={text}
            onInput={({ currentTarget }) => setText(currentTarget.value)}
          />
        </label>
        <span class="hint">{count(items.length, 'entry', 'entries')}</span>
      </div>
      <VirtualList
        label="Log of the run"
        items={items}
        keyOf={keyOf}
        follows={until === undefined && text === ''}
        render={(entry) => (
          <Row
            entry={entry}
            limit={limit}
            isOpen={open.has(entry.seq)}
            onToggle={toggle}
            images={images}
            plan={history.state.plan}
            output={entry.kind === 'call' ? live?.outputs.get(entry.event.callId) : undefined}
          />
        )}
        footer={live !== undefined && text === '' && <Now live={live} focus={focus} />}
      />
      {/* Not in its row, which leaves the document while others come. */}
      {enlarged !== undefined && (
        <ImageDialog run={run} shown={enlarged} onClose={() => setEnlarged(undefined)} />
      )}
    </div>
  )
}

const keyOf = ({ seq }: Entry) => String(seq)

function fits({ agentPath, stepId }: Pick<Entry, 'agentPath' | 'stepId'>, focus: Focus | undefined): boolean {
  if (focus === undefined) return true
  if ('stepId' in focus) return stepId === focus.stepId || stepId?.startsWith(`${focus.stepId}--`) === true
  return agentPath === focus.agentPath || agentPath.startsWith(`${focus.agentPath}/`)
}

function contains(entry: Entry, text: string): boolean {
  const wanted = text.trim().toLowerCase()
  if (wanted === '') return true
  const end = entry.kind === 'call' ? entry.end?.event.output : undefined
  const own = 'event' in entry ? JSON.stringify(entry.event) : entry.text
  return own.toLowerCase().includes(wanted) || (end?.toLowerCase().includes(wanted) ?? false)
}

interface RowProps {
  readonly entry: Entry
  readonly limit: number
  readonly isOpen: boolean
  readonly onToggle: (seq: number) => void
  readonly images: RunImages
  readonly output: string | undefined
  readonly plan: Plan | null
}

function Row({ entry, ...rest }: RowProps) {
  const { at, agentPath } = entry
  const isInner = entry.kind === 'call' && entry.event.parentCallId !== undefined
  return (
    <div
      class={`entry entry-${entry.kind === 'step' ? entry.event.type : entry.kind}${isInner ? ' entry-inner' : ''}`}
    >
      <div class="entry-when">
        <time dateTime={new Date(at).toISOString()}>{clock(at)}</time>
        <AgentTag agentPath={agentPath} />
      </div>
      <div class="entry-body">
        <StepTag stepId={entry.stepId} plan={rest.plan} />
        <Body entry={entry} {...rest} />
      </div>
    </div>
  )
}

/** Of a turn or call within a step: the entry of its list, or the inner step. */
function StepTag({
  stepId = '',
  plan,
}: {
  readonly stepId?: string | undefined
  readonly plan: Plan | null
}) {
  const label = labelOf(stepId, plan)
  return label === undefined ? null : <p class="step-tag">{label}</p>
}

function AgentTag({ agentPath }: { readonly agentPath: string }) {
  if (agentPath === 'root') return null
  const name = visibleLine(agentPath.replace(/^root\//, ''), 80)
  return (
    <span class="agent-tag" title={name}>
      {name}
    </span>
  )
}

function Body({ entry, limit, ...rest }: RowProps) {
  switch (entry.kind) {
    case 'prompt':
      return (
        <>
          <Untrusted class="say prompt" text={entry.text} />
          {entry.images.map(({ path, image }) => (
            <Thumbnail key={path} shown={{ name: path, image }} {...rest.images} />
          ))}
          {entry.notes.map((note) => (
            <p key={note} class="warning">
              {visible(note)}
            </p>
          ))}
        </>
      )
    case 'text':
      return <TextBody entry={entry} {...rest} />
    case 'call':
      return <CallBody entry={entry} limit={limit} {...rest} />
    case 'question':
      return <QuestionBody entry={entry} limit={limit} />
    case 'step':
      return <StepBody entry={entry} />
    case 'plan':
      return (
        <p>
          {entry.event.revision === 1
            ? 'Made a plan of '
            : `Changed the plan (revision ${entry.event.revision}) to `}
          {count(entry.event.plan.steps.length, 'step')}
          {entry.event.reason !== undefined && <>: {visible(entry.event.reason)}</>}
        </p>
      )
    case 'agent':
      return entry.event.type === 'agent-start' ? (
        <p>
          Sub-agent starts
          {entry.event.model !== undefined && ` with the model ${visibleLine(entry.event.model, 100)}`}:{' '}
          {visibleLine(entry.event.brief)}
        </p>
      ) : (
        <>
          <p>Sub-agent {entry.event.state}</p>
          {entry.event.text !== '' && !entry.repeats && <Untrusted class="say" text={entry.event.text} />}
        </>
      )
    case 'message':
      return (
        <>
          <p class="hint">
            {visibleLine(entry.event.by, 100)} to the agent
            {entry.seen !== undefined && entry.seen <= limit ? ' · read' : ' · not read yet'}
          </p>
          <Untrusted class="say message" text={entry.event.text} />
        </>
      )
    case 'network':
      return <NetworkBody entry={entry} />
    case 'host':
      return <p class={entry.level === 'warn' ? 'warning' : 'hint'}>{visible(entry.text)}</p>
    case 'end':
      return <EndBody entry={entry} />
  }
}

type Toggled = Omit<RowProps, 'entry' | 'limit'>

function TextBody({ entry, isOpen, onToggle }: { readonly entry: EntryOf<'text'> } & Toggled) {
  const { text, reasoning = '', usage } = entry.event
  return (
    <>
      {text.trim() !== '' && <Untrusted class="say" text={text} />}
      {reasoning !== '' && (
        <>
          <button type="button" class="plain fold" aria-expanded={isOpen} onClick={() => onToggle(entry.seq)}>
            Reasoning <span class="hint">{tokens(usage.outputTokens)} tokens</span>
          </button>
          {isOpen && <Untrusted class="reasoning" text={reasoning} />}
        </>
      )}
    </>
  )
}

function QuestionBody({ entry, limit }: { readonly entry: EntryOf<'question'>; readonly limit: number }) {
  const { request, access } = entry.event
  const decision =
    entry.decision !== undefined && entry.decision.seq <= limit ? entry.decision.event : undefined
  const about = access?.address ?? request.question?.question ?? request.tool
  if (request.tool === waitTool) return <WaitBody entry={entry} decision={decision} />
  return (
    <p>
      {decision === undefined ? (
        <strong>Waits for an answer: </strong>
      ) : (
        <span class={decision.decision === 'allow' ? 'plus' : 'minus'}>{decidedText(decision)}: </span>
      )}
      {visibleLine(about, 200)}
      {decision?.answer !== undefined && <> → {visibleLine(String(decision.answer), 200)}</>}
      {decision?.hint !== undefined && <> · {visibleLine(decision.hint, 200)}</>}
    </p>
  )
}

function WaitBody({
  entry,
  decision,
}: {
  readonly entry: EntryOf<'question'>
  readonly decision: NonNullable<EntryOf<'question'>['decision']>['event'] | undefined
}) {
  const until = untilOf(entry.event.request)
  const time = until === undefined ? 'a time' : dateTime(until)
  if (decision === undefined)
    return (
      <p>
        <strong>Waits until</strong> {time}
      </p>
    )
  const who = visibleLine(decision.name ?? 'A person', 100)
  return (
    <p>
      Waited for {time}:{' '}
      {decision.by === 'rule'
        ? 'the time has come'
        : decision.by !== 'person'
          ? 'the run ended the wait'
          : decision.decision === 'allow'
            ? `${who} continued it earlier`
            : `${who} ended the step`}
    </p>
  )
}

/** Who decided what, and for how long. */
export function decidedText({
  decision,
  by,
  name,
  scope,
  rule,
}: NonNullable<EntryOf<'question'>['decision']>['event']): string {
  const verb = decision === 'allow' ? 'allowed' : 'denied'
  const who =
    by === 'person'
      ? visibleLine(name ?? 'a person', 100)
      : by === 'rule'
        ? 'A rule'
        : by === 'mode'
          ? 'The mode of the run'
          : by === 'cancel'
            ? 'The end of the run'
            : 'The agent'
  const long = scope === 'once' ? '' : scope === 'run' ? ' for this run' : ' permanently'
  return `${who} ${verb}${long}${by === 'rule' && rule !== undefined ? ` (${visibleLine(rule, 100)})` : ''}`
}

function StepBody({ entry: { event, title, repeats } }: { readonly entry: EntryOf<'step'> }) {
  if (event.type === 'step-start') return <h3>{visibleLine(title)}</h3>
  if (event.type === 'step-retry')
    return (
      <p class="warning">
        {visibleLine(title)} is tried again: {visible(event.reason)}
      </p>
    )
  return (
    <>
      <p class={event.state === 'failed' ? 'warning' : 'hint'}>
        Step {event.state}: {visibleLine(title)}
        {event.state === 'skipped' && event.text !== '' && ` (${visibleLine(event.text)})`}
      </p>
      {event.state !== 'skipped' && event.text !== '' && !repeats && (
        <Untrusted class="say" text={event.text} />
      )}
    </>
  )
}

function NetworkBody({ entry: { event } }: { readonly entry: EntryOf<'network'> }) {
  if (event.type === 'egress-denied')
    return (
      <p>
        <span class="minus">Refused</span> <code>{visible(event.target)}</code> {visible(event.reason)}
      </p>
    )
  return (
    <p>
      <span class="plus">Reached</span> <code>{visible(event.target)}</code>{' '}
      <span class="hint">
        {bytes(event.bytesOut)} out, {bytes(event.bytesIn)} in, {duration(event.durationMs)}
      </span>
    </p>
  )
}

function EndBody({ entry: { event, repeats } }: { readonly entry: EntryOf<'end'> }) {
  return (
    <>
      <h3 class={`end end-${event.outcome}`}>
        The run{' '}
        {event.outcome === 'completed'
          ? 'completed'
          : event.outcome === 'failed'
            ? 'failed'
            : 'was cancelled'}{' '}
        <span class="hint">after {duration(event.durationMs)}</span>
      </h3>
      {event.message !== '' && (
        <p class={event.outcome === 'completed' ? 'hint' : 'warning'}>{visible(event.message)}</p>
      )}
      {event.summary !== '' && !repeats && (
        <Untrusted class="say" text={event.structured === true ? prettyJson(event.summary) : event.summary} />
      )}
    </>
  )
}

/** What the model writes now. */
function Now({ live, focus }: { readonly live: RunLive; readonly focus: Focus | undefined }) {
  const texts = [...live.texts.values()].filter(({ agentPath, stepId }) => fits({ agentPath, stepId }, focus))
  return (
    <>
      {texts.map(({ agentPath, stepId, text, reasoning, tool }) => (
        <div class="entry entry-live" key={`${agentPath} ${stepId}`}>
          <div class="entry-when">
            <span class="pulse" aria-hidden="true" />
            <AgentTag agentPath={agentPath} />
          </div>
          <div class="entry-body">
            {text !== '' ? (
              <Untrusted class="say" text={text} />
            ) : reasoning !== '' ? (
              <Untrusted class="reasoning" text={lastLines(reasoning, 6)} />
            ) : null}
            {tool !== undefined && <p class="hint">Writes a call of {visibleLine(tool, 80)}…</p>}
          </div>
        </div>
      ))}
    </>
  )
}
