/** The changes of a run: chosen by file or by hunk, applied to the files on the host, and undone. */
import { useEffect, useId, useMemo, useRef, useState } from 'preact/hooks'
import type { ServiceReply } from '../../client/index.ts'
import { ActionButton, Failure } from '../parts/parts.tsx'
import { bytes, count, visible, visibleLine } from '../parts/text.ts'
import { useSession } from '../session/session.ts'
import { DiffView } from './diff-view.tsx'
import { Downloads } from './downloads.tsx'
import {
  applyBody,
  type Change,
  canApply,
  chosenHunks,
  extentOf,
  firstSelection,
  type Selection,
  withFile,
  withHunk,
} from './selection.ts'
import type { AskedLine } from './why.ts'
import { WhyDialog } from './why-dialog.tsx'

type Listed = ServiceReply<'listChanges'>
type Outcome =
  | { readonly did: 'apply'; readonly result: ServiceReply<'applyChanges'> }
  | { readonly did: 'undo'; readonly result: ServiceReply<'undoChanges'> }

export interface ChangesViewProps {
  readonly run: string
  /** Applied paths, as far as is known; the changes are read again when it becomes another. */
  readonly applied: number | null
  readonly onChanged: () => void
}

export function ChangesView({ run, applied, onChanged }: ChangesViewProps) {
  const { client, fail } = useSession()
  const [listed, setListed] = useState<Listed>()
  const [error, setError] = useState<string>()
  const [selection, setSelection] = useState<Selection>()
  const [outcome, setOutcome] = useState<Outcome>()
  const params = { run }
  const load = async (signal?: AbortSignal) => {
    try {
      const found = await client.call('listChanges', { params, ...(signal === undefined ? {} : { signal }) })
      setListed(found)
      // What somebody chose stays chosen when the changes are read again.
      setSelection((before) => before ?? firstSelection(found.changes))
      setError(undefined)
    } catch (thrown) {
      if (signal?.aborted !== true) setError(fail(thrown))
    }
  }
  useEffect(() => {
    const ending = new AbortController()
    void load(ending.signal)
    return () => ending.abort()
  }, [run, applied])
  const changes = listed?.changes ?? []
  const chosen = selection ?? new Map()
  const body = applyBody(chosen, changes)
  const flagged = changes.filter(({ flagged }) => flagged !== undefined).length
  if (error !== undefined && listed === undefined) return <Failure text={error} />
  const appliedNow = outcome?.result.appliedNow ?? applied ?? 0
  if (listed === undefined) return <p role="status">Reading the changes…</p>
  return (
    <div class="changes">
      <div class="changes-bar">
        <p>
          <strong>{count(changes.length, 'changed path')}</strong> for{' '}
          <code>{visible(listed.directory)}</code>
          {changes.some(({ diff }) => diff !== null) && (
            <span class="why-hint">The + and − of a changed line say why it is there.</span>
          )}
          {flagged > 0 && (
            <span class="flag-note">
              {count(flagged, 'path can', 'paths can')} run code on your machine, and{' '}
              {flagged === 1 ? 'is' : 'are'} not chosen
            </span>
          )}
        </p>
        <div class="row">
          {changes.length > 0 && <Downloads run={run} />}
          <ActionButton
            class="primary"
            disabled={body === undefined}
            run={async () => {
              if (body === undefined) return
              setOutcome({ did: 'apply', result: await client.call('applyChanges', { params, body }) })
              onChanged()
              await load()
            }}
          >
            {applyLabel(body, changes.length)}
          </ActionButton>
          {appliedNow > 0 && (
            <ActionButton
              run={async () => {
                setOutcome({ did: 'undo', result: await client.call('undoChanges', { params }) })
                onChanged()
                await load()
              }}
            >
              Undo all that was applied
            </ActionButton>
          )}
        </div>
      </div>
      {error !== undefined && <Failure text={error} />}
      <div role="status">{outcome !== undefined && <OutcomeLine outcome={outcome} />}</div>
      {changes.length === 0 && <p class="empty">The run changed nothing.</p>}
      {changes.map((change, index) => (
        <FileChange
          key={change.path}
          run={run}
          change={change}
          isOpenAtFirst={index < 20}
          selection={chosen}
          onSelect={setSelection}
        />
      ))}
    </div>
  )
}

function applyLabel(body: ReturnType<typeof applyBody>, all: number): string {
  if (body === undefined) return 'Choose what to apply'
  const files = 'paths' in body.select ? body.select.paths.length : 0
  const parts = Object.keys(body.select.hunks ?? {}).length
  if (files === all) return `Apply all ${count(files, 'change')}`
  const words = [
    ...(files > 0 ? [count(files, 'change')] : []),
    ...(parts > 0 ? [`parts of ${count(parts, 'file')}`] : []),
  ]
  return `Apply ${words.join(' and ')}`
}

function OutcomeLine({ outcome }: { readonly outcome: Outcome }) {
  const { result } = outcome
  const head =
    outcome.did === 'apply'
      ? `Applied ${count(outcome.result.applied.length, 'path')}.`
      : `Restored ${count(outcome.result.restored.length, 'path')}.`
  const held = [
    ...result.conflicts.map((item) => ({ ...item, what: 'Conflict' })),
    ...(outcome.did === 'apply'
      ? [
          ...outcome.result.failed.map((item) => ({ ...item, what: 'Failed' })),
          ...outcome.result.leftOut.map((item) => ({ ...item, what: 'Left out' })),
        ]
      : outcome.result.problems.map((reason) => ({ path: '', reason, what: 'Problem' }))),
  ]
  return (
    <div class="outcome">
      <p>{head}</p>
      {result.stopped !== undefined && <p>{visible(result.stopped.message)}</p>}
      {held.length > 0 && (
        <ul>
          {held.slice(0, 100).map(({ what, path, reason }) => (
            <li key={`${what} ${path}`}>
              {what}: <code>{visible(path)}</code> {visible(reason)}
            </li>
          ))}
        </ul>
      )}
    </div>
  )
}

function FileChange({
  run,
  change,
  isOpenAtFirst,
  selection,
  onSelect,
}: {
  readonly run: string
  readonly change: Change
  readonly isOpenAtFirst: boolean
  readonly selection: Selection
  readonly onSelect: (selection: Selection) => void
}) {
  const id = useId()
  const [isOpen, setOpen] = useState(isOpenAtFirst)
  const [asked, setAsked] = useState<AskedLine>()
  const extent = extentOf(selection, change)
  const box = useRef<HTMLInputElement>(null)
  useEffect(() => {
    if (box.current !== null) box.current.indeterminate = extent === 'some'
  }, [extent])
  const { path, state, flagged, diff } = change
  const reason = state.kind === 'conflict' && typeof state.reason === 'string' ? state.reason : undefined
  const canChooseHunks = canApply(change) && change.hunks.length > 1
  const lines = useMemo(() => lineCounts(diff), [diff])
  return (
    <section class="file card" aria-labelledby={id}>
      <header>
        <input
          ref={box}
          type="checkbox"
          aria-label={`Choose ${visible(path)}`}
          checked={extent === 'all'}
          disabled={!canApply(change)}
          onChange={({ currentTarget: { checked } }) => onSelect(withFile(selection, change, checked))}
        />
        <h3 id={id}>
          <button type="button" class="plain path" aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>
            {visible(path)}
          </button>
        </h3>
        <span class={`change change-${change.change}`}>{change.change}</span>
        {lines !== undefined && (
          <span class="lines">
            <span class="plus">+{lines.added}</span> <span class="minus">−{lines.removed}</span>
          </span>
        )}
        {flagged !== undefined && (
          <span class="badge warn" title={visible(flagged)}>
            flagged
          </span>
        )}
        {state.kind === 'conflict' && <span class="badge bad">conflict</span>}
        {state.kind === 'applied' && <span class="badge good">applied</span>}
      </header>
      {flagged !== undefined && (
        <p class="file-note warn">Not applied unless you choose it: {visible(flagged)}</p>
      )}
      {reason !== undefined && <p class="file-note bad">{visible(reason)}</p>}
      {change.renamedFrom !== undefined && (
        <p class="file-note">Same content as {visible(change.renamedFrom)}</p>
      )}
      {isOpen && diff !== null && (
        <DiffView
          diff={diff}
          onWhy={setAsked}
          {...(canChooseHunks
            ? {
                headOf: (index: number, header: string) => {
                  const hunk = change.hunks[index]
                  if (hunk === undefined) return visible(header)
                  return (
                    <label>
                      <input
                        type="checkbox"
                        checked={chosenHunks(selection, change).includes(hunk.id)}
                        onChange={({ currentTarget: { checked } }) =>
                          onSelect(withHunk(selection, change, hunk.id, checked))
                        }
                      />
                      <span class="visually-hidden">Choose hunk {index + 1}: </span>
                      {visible(header)}
                    </label>
                  )
                },
              }
            : {})}
        />
      )}
      {asked !== undefined && (
        <WhyDialog run={run} path={path} line={asked} onClose={() => setAsked(undefined)} />
      )}
      {isOpen && diff === null && <p class="file-note">{noDiffText(change)}</p>}
    </section>
  )
}

function noDiffText({ noDiff, reason, after, filesBelow }: Change): string {
  const size = typeof after === 'object' && after !== null && 'size' in after ? Number(after.size) : undefined
  const parts = [visibleLine(noDiff ?? reason ?? 'There is no diff')]
  if (size !== undefined) parts.push(bytes(size))
  if (filesBelow !== undefined) parts.push(`${count(filesBelow, 'file')} below`)
  return parts.join(' · ')
}

function lineCounts(diff: string | null): { added: number; removed: number } | undefined {
  if (diff === null) return undefined
  let added = 0
  let removed = 0
  let isInHunk = false
  for (const line of diff.split('\n')) {
    if (line.startsWith('@@')) isInHunk = true
    else if (isInHunk && line.startsWith('+')) added++
    else if (isInHunk && line.startsWith('-')) removed++
  }
  return { added, removed }
}
