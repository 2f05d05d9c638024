/** One run: its questions, plan, log, changes and network, at work or as it was. */
import { useEffect, useMemo, useRef, useState } from 'preact/hooks'
import type { RunState } from '#specs/protocol/run-state.ts'
import type { ServiceReply } from '../../client/index.ts'
import { ChangesView } from '../changes/changes-view.tsx'
import { ActionButton, Failure, Status, Tabs, useNow, useViewHeading } from '../parts/parts.tsx'
import { dateTime, visible, visibleLine } from '../parts/text.ts'
import { fromResource, type Question, untilOf } from '../questions/question.ts'
import { QuestionCard } from '../questions/question-card.tsx'
import { usePoll } from '../session/poll.ts'
import { type RunTab, runAddress } from '../session/route.ts'
import { useSession } from '../session/session.ts'
import { Composer } from './composer.tsx'
import { DetailsView } from './details-view.tsx'
import { Figures } from './figures.tsx'
import { ForkDialog } from './fork-dialog.tsx'
import type { EntryOf, RunHistory } from './history.ts'
import type { RunLive } from './live.ts'
import { decidedText, Log } from './log.tsx'
import { NetworkView } from './network-view.tsx'
import { type Focus, PlanView } from './plan-view.tsx'
import { ReplayBar } from './replay-bar.tsx'
import { type Connection, useRun } from './use-run.ts'

export function RunPage({ run, tab }: { readonly run: string; readonly tab: RunTab }) {
  const { client } = useSession()
  const { history, live, connection, error, version, follow } = useRun(run)
  const { value: resource, refresh } = usePoll(`run ${run}`, 3_000, (signal) =>
    client.call('getRun', { params: { run }, signal }),
  )
  useEffect(() => {
    // Another process continued the run, or somebody applied or undid its changes.
    const isBehind = resource?.isLive === true || resource?.applied !== history.state.applied
    if (connection === 'over' && resource !== undefined && isBehind) follow()
  }, [resource])
  const [position, setPosition] = useState<number>()
  const [focus, setFocus] = useState<Focus>()
  const [isForking, setForking] = useState(false)
  const isOver = history.state.end !== null
  const now = useNow(1_000, !isOver)
  const shown = useMemo(
    () => (position === undefined ? history.state : history.stateAt(position)),
    [history, version, position],
  )
  const line = position === undefined ? undefined : history.lineAt(position)
  const until = line?.seq
  const prompt = history.start?.prompt ?? resource?.prompt ?? ''
  const changes = history.state.changes?.entries
  return (
    <main id="main" class="run">
      <RunHead
        {...{ run, prompt, history, connection }}
        status={statusOf(history.state, resource?.status)}
        onFork={() => setForking(true)}
        onActed={() => {
          refresh()
          follow()
        }}
      />
      {error !== undefined && <Failure text={error} />}
      <LiveNotes live={live} connection={connection} resource={resource} />
      <Figures
        history={history}
        state={shown}
        live={live}
        now={momentOf(history, line?.at, now)}
        showsLive={!isOver}
      />
      <Questions run={run} history={history} version={version} />
      {isOver && history.length > 1 && (
        <ReplayBar history={history} position={position} onMove={setPosition} />
      )}
      <div class="run-columns">
        <PlanView
          {...{ state: shown, focus, onFocus: setFocus, rounds: history.rounds }}
          outline={history.start?.workflow?.outline}
          {...(isOver
            ? {}
            : {
                onCancelAgent: (agent: string) =>
                  client.call('cancelRun', { params: { run }, body: { agent } }),
              })}
        />
        <div class="run-main-column">
          <Tabs
            label="Parts of the run"
            current={tab}
            // Another part of the same run is no step of the browser's history.
            onChange={(next) => location.replace(runAddress(run, next))}
            tabs={[
              { id: 'activity', label: 'Activity' },
              { id: 'changes', label: 'Changes', count: changes ?? live.changes?.paths.length },
              { id: 'network', label: 'Network', count: history.network.length },
              { id: 'details', label: 'Details' },
            ]}
          />
          <div id="tab-panel" role="tabpanel" aria-labelledby={`tab-${tab}`} class="tab-panel">
            {tab === 'activity' && (
              <>
                <Log
                  {...{ run, history, version, focus }}
                  {...(until === undefined ? {} : { until })}
                  {...(isOver ? {} : { live })}
                />
                {!isOver && <Composer run={run} agents={agentsAtWork(history.state)} />}
              </>
            )}
            {tab === 'changes' &&
              (changes === undefined ? (
                <ChangesSoFar live={live} isOver={isOver} />
              ) : (
                <ChangesView run={run} applied={history.state.applied} onChanged={follow} />
              ))}
            {tab === 'network' && (
              <NetworkView history={history} {...(until === undefined ? {} : { until })} />
            )}
            {tab === 'details' && <DetailsView {...{ run, resource, history }} />}
          </div>
        </div>
      </div>
      {isForking && <ForkDialog run={run} state={history.state} onClose={() => setForking(false)} />}
    </main>
  )
}

function momentOf(history: RunHistory, at: number | undefined, now: number): number {
  if (at !== undefined) return at
  return history.state.end === null ? Math.max(now, history.startedAt) : history.lastAt
}

function agentsAtWork({ agents }: RunState): string[] {
  return Object.entries(agents).flatMap(([path, { state }]) => (state === 'running' ? [path] : []))
}

/** The events know of a question or an end before the next read of the run does. */
function statusOf(state: RunState, listed: string | undefined): string {
  if (state.end !== null) return state.end.outcome
  if (listed === 'sleeping' || listed === 'interrupted' || listed === 'damaged') return listed
  if (Object.keys(state.pendingApprovals).length > 0) return 'waiting'
  return state.paused ? 'paused' : (listed ?? 'running')
}

function RunHead({
  run,
  prompt,
  status,
  history,
  connection,
  onFork,
  onActed,
}: {
  readonly run: string
  readonly prompt: string
  readonly status: string
  readonly history: RunHistory
  readonly connection: Connection
  readonly onFork: () => void
  readonly onActed: () => void
}) {
  const { client } = useSession()
  const heading = useViewHeading(prompt === '' ? 'Run' : prompt)
  const params = { run }
  const isOver = history.state.end !== null
  const isAtWork = !isOver && status !== 'interrupted' && status !== 'damaged'
  return (
    <header class="run-head">
      <div class="run-title">
        <h1 ref={heading} tabIndex={-1}>
          {visibleLine(prompt, 240) || run}
        </h1>
        <div role="status" class="run-status">
          <Status status={status} />
          {connection === 'reconnecting' && <span class="badge warn">Reconnecting to the service…</span>}
          {connection === 'connecting' && <span class="hint">Connecting…</span>}
        </div>
      </div>
      <div class="row actions">
        {isAtWork && status !== 'sleeping' && (
          <ActionButton run={() => client.call(history.state.paused ? 'unpauseRun' : 'pauseRun', { params })}>
            {history.state.paused ? 'Continue' : 'Pause'}
          </ActionButton>
        )}
        {status === 'interrupted' && (
          <ActionButton
            class="primary"
            run={async () => {
              await client.call('resumeRun', { params })
              onActed()
            }}
          >
            Continue the run
          </ActionButton>
        )}
        <button type="button" onClick={onFork}>
          Fork or rewind…
        </button>
        {isAtWork && <CancelButton run={run} />}
      </div>
    </header>
  )
}

/** Asks once before it cancels; a second press is the answer. */
function CancelButton({ run }: { readonly run: string }) {
  const { client } = useSession()
  const [isSure, setSure] = useState(false)
  if (!isSure)
    return (
      <button type="button" class="danger" onClick={() => setSure(true)}>
        Cancel run
      </button>
    )
  return (
    <>
      <ActionButton
        class="danger filled"
        run={async () => {
          await client.call('cancelRun', { params: { run }, body: {} })
          setSure(false)
        }}
      >
        Really cancel
      </ActionButton>
      <button type="button" onClick={() => setSure(false)}>
        Keep running
      </button>
    </>
  )
}

/** Waits of a model request that last; the others are how every request goes. */
const modelWaits: Readonly<Record<string, string>> = {
  hook: 'A model request waits for a hook',
  budget: 'A model request waits for others of the run, which reserve the rest of the budget',
  turn: 'A model request waits for others with the same key',
  rate: 'A model request waits for the configured rate',
  pause: 'A model request waits as long as the server demands',
}

/** What holds the run up right now. */
function LiveNotes({
  live,
  connection,
  resource,
}: {
  readonly live: RunLive
  readonly connection: Connection
  readonly resource: ServiceReply<'getRun'> | undefined
}) {
  const { problem, queue } = resource ?? {}
  const wait = live.modelWait === null ? undefined : modelWaits[live.modelWait.for]
  const notes = [
    ...(live.diskFull === null ? [] : [live.diskFull.text]),
    ...(queue === undefined ? [] : [queueNote(queue)]),
    ...(live.prepare === null || live.prepare.what === 'queue' ? [] : [live.prepare.text]),
    ...(wait === undefined || connection !== 'live' ? [] : [wait]),
    ...(problem === undefined ? [] : [problem]),
  ]
  if (notes.length === 0) return null
  return (
    <ul class="notes">
      {notes.map((note) => (
        <li key={note}>{visible(note)}</li>
      ))}
    </ul>
  )
}

function queueNote({ place, waiting, startBy }: NonNullable<ServiceReply<'getRun'>['queue']>): string {
  const until = startBy === undefined ? '' : `; it ends if it has not begun by ${dateTime(startBy)}`
  return `The run waits for its turn: place ${place} of ${waiting} in the queue${until}`
}

/** The questions of the run that wait, and for those that were here: who answered them meanwhile. */
function Questions({
  run,
  history,
  version,
}: {
  readonly run: string
  readonly history: RunHistory
  readonly version: number
}) {
  const seen = useRef(new Set<string>())
  const [dismissed, setDismissed] = useState<ReadonlySet<string>>(new Set())
  const waiting = Object.values(history.state.pendingApprovals)
  const questions = useQuestions(run, history, waiting)
  useEffect(() => {
    for (const { approvalId } of waiting) seen.current.add(approvalId)
  }, [version])
  const answered = [...seen.current].flatMap((id) => {
    const entry = history.question(id)
    return entry?.decision === undefined || dismissed.has(id)
      ? []
      : [{ id, entry, decision: entry.decision.event }]
  })
  return (
    <>
      <p class="visually-hidden" role="status">
        {waiting.length > 0
          ? `${waiting.length === 1 ? 'A question waits' : `${waiting.length} questions wait`} for your answer`
          : ''}
      </p>
      {(waiting.length > 0 || answered.length > 0) && (
        <section class="stack" aria-labelledby="questions-head">
          <h2 id="questions-head" class="visually-hidden">
            Questions
          </h2>
          {questions.map((question) => (
            <QuestionCard key={`${question.approval.approvalId} ${question.digest}`} question={question} />
          ))}
          {answered.slice(-3).map(({ id, entry, decision }) => (
            <div key={id} class="answered" role="status">
              <span>
                {decidedText(decision)}: <strong>{visibleLine(aboutOf(entry.event), 120)}</strong>
              </span>
              <button type="button" class="plain" onClick={() => setDismissed(new Set([...dismissed, id]))}>
                Dismiss
              </button>
            </div>
          ))}
        </section>
      )}
    </>
  )
}

/** The questions as the service shows them, since an answer needs their digests. */
function useQuestions(
  run: string,
  history: RunHistory,
  waiting: readonly { readonly approvalId: string }[],
): readonly Question[] {
  const { client } = useSession()
  // An ID can stand for another question later.
  const asked = waiting.map(({ approvalId }) => `${history.question(approvalId)?.seq} ${approvalId}`)
  const { value } = usePoll(`questions ${run} ${asked.join(' ')}`, 2_000, async (signal) =>
    asked.length === 0 ? [] : (await client.call('listApprovals', { query: { run }, signal })).approvals,
  )
  const ids = new Set(waiting.map(({ approvalId }) => approvalId))
  return (value ?? []).filter(({ approval }) => ids.has(approval.approvalId)).map(fromResource)
}

/** What a question was about, in a few words. */
function aboutOf({ access, request }: EntryOf<'question'>['event']): string {
  const until = untilOf(request)
  if (until !== undefined) return `the wait until ${dateTime(until)}`
  return access?.address ?? request.question?.question ?? request.tool
}

/** Before the run has ended, only names of what it changed are known. */
function ChangesSoFar({ live, isOver }: { readonly live: RunLive; readonly isOver: boolean }) {
  const paths = live.changes?.paths ?? []
  if (paths.length === 0)
    return (
      <p class="empty card">
        {isOver
          ? 'The run brought no changes.'
          : 'Nothing has changed so far. Diffs are here when the run has ended.'}
      </p>
    )
  return (
    <section class="card pad" aria-label="Changes so far">
      <p class="hint">So far; diffs are here when the run has ended.</p>
      <ul class="plain-list">
        {paths.map(({ path, kind, added, removed, flags }) => (
          <li key={path}>
            <span class={`change change-${kind}`}>{kind}</span> <code>{visible(path)}</code>{' '}
            {added !== undefined && <span class="plus">+{added}</span>}{' '}
            {removed !== undefined && <span class="minus">−{removed}</span>}
            {flags !== undefined && <span class="badge warn">{visible(flags.join(', '))}</span>}
          </li>
        ))}
      </ul>
    </section>
  )
}
