/** Continues a run from an earlier moment: as other runs beside it, or as one that takes its place. */
import { useState } from 'preact/hooks'
import type { RunState } from '#specs/protocol/run-state.ts'
import { Dialog, Failure } from '../parts/parts.tsx'
import { visibleLine } from '../parts/text.ts'
import { runAddress } from '../session/route.ts'
import { actor, useSession } from '../session/session.ts'

export function ForkDialog({
  run,
  state,
  onClose,
}: {
  readonly run: string
  readonly state: RunState
  readonly onClose: () => void
}) {
  const { client, fail } = useSession()
  const [kind, setKind] = useState<'fork' | 'rewind'>('fork')
  const moments = momentsOf(state)
  const [at, setAt] = useState(moments.at(-1)?.id ?? 'start')
  const [prompt, setPrompt] = useState('')
  const [copies, setCopies] = useState(1)
  const [despite, setDespite] = useState(false)
  const [error, setError] = useState<string>()
  const [isBusy, setBusy] = useState(false)
  const params = { run }
  const text = prompt.trim()
  const fork = async () => {
    const body = {
      at,
      count: copies,
      ...(text === '' ? {} : { prompts: Array(copies).fill(text) as string[] }),
      ...actor(),
    }
    return (await client.call('forkRun', { params, body })).runIds
  }
  const rewind = async () => {
    const body = {
      to: at,
      ...(text === '' ? {} : { prompt: text }),
      ...(despite ? { despiteEffects: true } : {}),
      ...actor(),
    }
    return [(await client.call('rewindRun', { params, body })).runId]
  }
  const go = async () => {
    setBusy(true)
    setError(undefined)
    try {
      const made = await (kind === 'fork' ? fork() : rewind())
      // Each is at work as soon as it is started; the first one that cannot start says why.
      for (const id of made) await client.call('resumeRun', { params: { run: id } })
      onClose()
      location.hash = made.length === 1 ? runAddress(made[0] ?? run) : '#/'
    } catch (thrown) {
      setError(fail(thrown))
    } finally {
      setBusy(false)
    }
  }
  return (
    <Dialog title="Continue from an earlier moment" onClose={onClose}>
      <form
        class="stack"
        onSubmit={(event) => {
          event.preventDefault()
          if (!isBusy) void go()
        }}
      >
        <fieldset class="choices">
          <legend>How</legend>
          <label>
            <input type="radio" name="kind" checked={kind === 'fork'} onChange={() => setKind('fork')} />
            Fork: new runs, and this one stays as it is
          </label>
          <label>
            <input type="radio" name="kind" checked={kind === 'rewind'} onChange={() => setKind('rewind')} />
            Rewind: one new run takes the place of this one
          </label>
        </fieldset>
        <label>
          From
          <select value={at} onChange={({ currentTarget }) => setAt(currentTarget.value)}>
            {moments.map(({ id, label }) => (
              <option key={id} value={id}>
                {label}
              </option>
            ))}
          </select>
        </label>
        <label>
          What you say to the agent there
          <textarea rows={3} value={prompt} onInput={({ currentTarget }) => setPrompt(currentTarget.value)} />
          <span class="hint">Optional, such as “use a database”.</span>
        </label>
        {kind === 'fork' ? (
          <label>
            New runs
            <input
              type="number"
              min={1}
              max={16}
              value={copies}
              onInput={({ currentTarget }) =>
                setCopies(Math.max(1, Math.min(16, Number(currentTarget.value) || 1)))
              }
            />
          </label>
        ) : (
          <label class="check">
            <input
              type="checkbox"
              checked={despite}
              onChange={({ currentTarget }) => setDespite(currentTarget.checked)}
            />
            Also when the run did something outside its VM since, which stays
          </label>
        )}
        {error !== undefined && <Failure text={error} />}
        <div class="row">
          <button type="submit" class="primary" aria-busy={isBusy}>
            {kind === 'fork' ? 'Fork' : 'Rewind'}
          </button>
          <button type="button" onClick={onClose}>
            Cancel
          </button>
        </div>
      </form>
    </Dialog>
  )
}

function momentsOf({ plan, moments, end }: RunState): { id: string; label: string }[] {
  const titles = new Map(plan?.steps.map(({ id, title }) => [id, title]))
  return [
    { id: 'start', label: 'The beginning' },
    ...Object.keys(moments).map((id) => ({ id, label: `Before ${visibleLine(titles.get(id) ?? id, 80)}` })),
    end === null ? { id: 'now', label: 'Now' } : { id: 'end', label: 'The end' },
  ]
}
