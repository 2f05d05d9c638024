/** All runs, newest first, with the questions that wait for an answer above them. */
import { useState } from 'preact/hooks'
import { waitTool } from '#specs/protocol/tool-names.ts'
import type { ServiceReply } from '../../client/index.ts'
import { NotifyButton } from '../parts/notify-button.tsx'
import { Failure, Status, useNow, useViewHeading } from '../parts/parts.tsx'
import { ago, count, dateTime, dollars, duration, tokens, visibleLine } from '../parts/text.ts'
import { fromResource } from '../questions/question.ts'
import { QuestionCard } from '../questions/question-card.tsx'
import { usePoll } from '../session/poll.ts'
import { runAddress } from '../session/route.ts'
import { useSession } from '../session/session.ts'

type Run = ServiceReply<'listRuns'>['runs'][number]

const statuses = [
  'queued',
  'running',
  'waiting',
  'sleeping',
  'interrupted',
  'completed',
  'failed',
  'cancelled',
] as const
const pageSize = 50

export function RunsPage() {
  const { client } = useSession()
  const heading = useViewHeading('Runs')
  const [status, setStatus] = useState('')
  const [text, setText] = useState('')
  const [limit, setLimit] = useState(pageSize)
  const { value, error } = usePoll(`runs ${status} ${limit}`, 2_500, (signal) =>
    client.call('listRuns', { query: { limit, ...(status === '' ? {} : { status }) }, signal }),
  )
  const questions = usePoll('questions', 2_000, (signal) => client.call('listApprovals', { signal }))
  // The clock answers waits of workflows.
  const approvals = (questions.value?.approvals ?? []).filter(({ approval }) => approval.tool !== waitTool)
  const runs = value?.runs.filter((run) => matches(run, text)) ?? []
  return (
    <main id="main" class="wide">
      <div class="page-head">
        <h1 ref={heading} tabIndex={-1}>
          Runs
        </h1>
        <NotifyButton />
        <a class="button primary" href="#/new">
          New run
        </a>
      </div>
      <p class="visually-hidden" role="status">
        {approvals.length === 0
          ? 'No question waits'
          : `${count(approvals.length, 'question waits', 'questions wait')} for an answer`}
      </p>
      {approvals.length > 0 && (
        <section aria-labelledby="questions-head" class="stack">
          <h2 id="questions-head">
            Waiting for you{' '}
            <span class="count">
              {approvals.length}
              {questions.value?.hasMore === true && '+'}
            </span>
          </h2>
          {approvals.map((resource) => (
            <QuestionCard
              key={`${resource.runId} ${resource.approval.approvalId} ${resource.digest}`}
              question={fromResource(resource)}
              showsRun
              onAnswered={questions.refresh}
            />
          ))}
        </section>
      )}
      <section aria-label="List of runs" class="stack">
        <search class="filters" aria-label="Runs">
          <label class="grow">
            <span class="visually-hidden">Filter by text</span>
            <input
              type="search"
              placeholder="Filter by prompt, folder or ID"
              value={text}
              onInput={({ currentTarget }) => setText(currentTarget.value)}
            />
          </label>
          <label>
            <span class="visually-hidden">Filter by status</span>
            <select value={status} onChange={({ currentTarget }) => setStatus(currentTarget.value)}>
              <option value="">All statuses</option>
              {statuses.map((name) => (
                <option key={name} value={name}>
                  {name}
                </option>
              ))}
            </select>
          </label>
        </search>
        {error !== undefined && <Failure text={error} />}
        <RunList
          runs={runs}
          isEmpty={value !== undefined && runs.length === 0}
          isFiltered={text !== '' || status !== ''}
        />
        {value?.nextCursor !== undefined && (
          <button type="button" class="more" onClick={() => setLimit(Math.min(1_000, limit + pageSize))}>
            Show more
          </button>
        )}
      </section>
    </main>
  )
}

function matches({ prompt, workspace, id }: Run, text: string): boolean {
  const wanted = text.trim().toLowerCase()
  return [prompt, workspace, id].some((value) => value.toLowerCase().includes(wanted))
}

function RunList({
  runs,
  isEmpty,
  isFiltered,
}: {
  readonly runs: readonly Run[]
  readonly isEmpty: boolean
  readonly isFiltered: boolean
}) {
  const now = useNow(15_000)
  if (isEmpty)
    return (
      <p class="empty card">
        {isFiltered
          ? 'No run fits the filter.'
          : 'There are no runs yet. Start one with “New run”, or with caisson run in a terminal.'}
      </p>
    )
  return (
    <ul class="runs card">
      {runs.map((run) => (
        <li key={run.id}>
          <a href={runAddress(run.id)}>
            <Status status={run.status} />
            <span class="run-main">
              <span class="run-prompt">{visibleLine(run.prompt, 200) || '(no prompt)'}</span>
              <span class="run-place">{placeOf(run)}</span>
            </span>
            <span class="run-cost">
              {tokens(run.usage.inputTokens + run.usage.outputTokens)} tokens
              {run.costUsd !== null && ` · ${dollars(run.costUsd)}`}
            </span>
            <time dateTime={new Date(run.startedAt).toISOString()} title={dateTime(run.startedAt)}>
              {run.since === undefined || run.end !== null
                ? ago(run.startedAt, now)
                : `for ${duration(Math.max(1_000, now - run.since))}`}
            </time>
          </a>
        </li>
      ))}
    </ul>
  )
}

function placeOf({ workspace, queue, changes, applied, pendingApprovals, forkedFrom, problem }: Run): string {
  const parts = [visibleLine(workspace, 120)]
  // Before the folder, which may be cut.
  if (queue !== undefined) parts.unshift(`place ${queue.place} of ${queue.waiting} in the queue`)
  if (changes !== null && changes > 0)
    parts.push(
      applied !== null && applied > 0
        ? `${applied} of ${count(changes, 'change')} applied`
        : count(changes, 'change'),
    )
  if (pendingApprovals > 0) parts.push(count(pendingApprovals, 'question'))
  if (forkedFrom !== undefined) parts.push('fork')
  if (problem !== undefined) parts.push(visibleLine(problem, 120))
  return parts.join(' · ')
}
