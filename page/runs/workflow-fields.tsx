/** The part of the form that is about a workflow: its file, what is wrong with it, its steps, its input. */
import { useRef, useState } from 'preact/hooks'
import { Failure } from '../parts/parts.tsx'
import { placeSteps } from '../parts/plan-lanes.ts'
import { StepGraph } from '../parts/step-graph.tsx'
import { count, visible, visibleLine } from '../parts/text.ts'
import type { InputField } from './input-form.ts'
import type { CheckedWorkflow, DraftWorkflow } from './use-workflow.ts'

type Workflow = NonNullable<CheckedWorkflow['workflow']>
type Problem = CheckedWorkflow['problems'][number]

export function WorkflowFields({ draft }: { readonly draft: DraftWorkflow }) {
  const { text, setText, take, checked, error } = draft
  const area = useRef<HTMLTextAreaElement>(null)
  const [isOver, setOver] = useState(false)
  return (
    <>
      <label>
        Workflow file
        <input
          type="file"
          accept=".json,.yaml,.yml,application/json"
          onChange={({ currentTarget }) => {
            const [file] = currentTarget.files ?? []
            if (file !== undefined) void take(file)
          }}
        />
      </label>
      <label>
        Its text
        <textarea
          ref={area}
          class={`workflow-text${isOver ? ' drop' : ''}`}
          rows={text === '' ? 4 : 10}
          required
          spellcheck={false}
          placeholder="Paste a .workflow.json file here, or drop it"
          value={text}
          aria-describedby="workflow-state"
          onInput={({ currentTarget }) => setText(currentTarget.value)}
          onDragOver={(event) => {
            event.preventDefault()
            setOver(true)
          }}
          onDragLeave={() => setOver(false)}
          onDrop={(event) => {
            event.preventDefault()
            setOver(false)
            const file = event.dataTransfer?.files[0]
            const dropped = event.dataTransfer?.getData('text') ?? ''
            if (file !== undefined) void take(file)
            else if (dropped !== '') setText(dropped)
          }}
        />
      </label>
      {error !== undefined && <Failure text={error} />}
      <div id="workflow-state" role="status">
        {checked !== undefined && checked.problems.length > 0 && (
          <Problems problems={checked.problems} onShow={(problem) => showPlace(area.current, problem)} />
        )}
        {checked?.workflow != null && <Drawing workflow={checked.workflow} />}
      </div>
      {checked?.workflow != null && <InputFields draft={draft} />}
    </>
  )
}

function Problems({
  problems,
  onShow,
}: {
  readonly problems: readonly Problem[]
  readonly onShow: (problem: Problem) => void
}) {
  return (
    <section class="problems" aria-label="Problems">
      <p class="warning">{count(problems.length, 'problem')}: this workflow cannot run</p>
      <ol class="plain-list">
        {problems.map((problem) => {
          const { key, path, message, line, column } = problem
          const place = [key, path].filter((part) => part !== '').join(' ')
          return (
            <li key={`${line} ${column} ${path} ${message}`}>
              <button type="button" class="plain place" onClick={() => onShow(problem)}>
                Line {line}, column {column}
              </button>
              <span>
                {place !== '' && <code>{visibleLine(place, 160)}</code>} {visible(message)}
              </span>
            </li>
          )
        })}
      </ol>
    </section>
  )
}

/** Puts the cursor where the problem is. */
function showPlace(area: HTMLTextAreaElement | null, { line, column }: Problem): void {
  if (area === null) return
  const lines = area.value.split('\n')
  const start = lines.slice(0, line - 1).reduce((sum, { length }) => sum + length + 1, 0)
  area.focus()
  area.setSelectionRange(start + column - 1, start + (lines[line - 1]?.length ?? column - 1))
  // Browsers do not scroll to a selection that a program makes.
  area.scrollTop = (area.scrollHeight / Math.max(1, lines.length)) * Math.max(0, line - 3)
}

const works = {
  ...{ chat: 'chat', call: 'call', ask: 'question', wait: 'wait', workflow: 'workflow' },
  from: 'of another workflow',
} as const

function Drawing({ workflow }: { readonly workflow: Workflow }) {
  const { name, version, description = '', steps } = workflow
  const placed = placeSteps(
    steps.map(({ id }) => ({
      id,
      needs: steps.filter(({ next }) => next.some(({ to }) => to === id)).map((from) => from.id),
    })),
  )
  return (
    <section class="drawing" aria-label="Steps of the workflow">
      <p>
        <strong>{visibleLine(`${name}@${version}`, 200)}</strong> · {count(steps.length, 'step')}
        {description !== '' && <span class="hint"> {visibleLine(description)}</span>}
      </p>
      <StepGraph
        placed={placed}
        stateOf={() => 'pending'}
        row={({ id }) => {
          const step = steps.find((other) => other.id === id)
          if (step === undefined) return null
          const words = describe(step, steps)
          return (
            <span class="step" title={words.join('\n')}>
              <span class="step-title">{visibleLine(step.name, 120)}</span>
              <span class="step-meta">{words.join(' · ')}</span>
            </span>
          )
        }}
      />
    </section>
  )
}

function describe(step: Workflow['steps'][number], steps: Workflow['steps']): string[] {
  const { work, each, when, repeat, next } = step
  const nameOf = (id: string) => (id === '-' ? 'end' : (steps.find((other) => other.id === id)?.name ?? id))
  const cases = next.filter(({ isCase }) => isCase)
  const failures = next.filter(({ on }) => on === 'failed')
  return [
    works[work],
    ...(each === undefined ? [] : [`each of ${each}`]),
    ...(when === undefined ? [] : [`if ${when}`]),
    ...(repeat === undefined ? [] : [`until ${repeat}`]),
    ...cases.map(({ to, when: condition }) => `${condition ?? 'else'} → ${nameOf(to)}`),
    ...failures.map(({ to }) => `failure → ${nameOf(to)}`),
  ].map((word) => visibleLine(word, 160))
}

function InputFields({
  draft: { fields, values, setValue, json, setJson },
}: {
  readonly draft: DraftWorkflow
}) {
  if (fields === undefined)
    return (
      <label>
        Input as JSON
        <textarea
          rows={3}
          spellcheck={false}
          class="workflow-text"
          placeholder="null"
          value={json}
          onInput={({ currentTarget }) => setJson(currentTarget.value)}
        />
      </label>
    )
  if (fields.length === 0) return null
  return (
    <fieldset class="choices">
      <legend>Input</legend>
      {fields.map((field) => (
        <InputOf
          key={field.name}
          field={field}
          value={values[field.name] ?? field.initial}
          onValue={(value) => setValue(field.name, value)}
        />
      ))}
    </fieldset>
  )
}

function InputOf({
  field: { name, kind, options, isRequired, description },
  value,
  onValue,
}: {
  readonly field: InputField
  readonly value: string
  readonly onValue: (value: string) => void
}) {
  const label = `${visibleLine(name, 100)}${isRequired ? '' : ' (optional)'}`
  const hint = description === '' ? null : <span class="hint">{visibleLine(description)}</span>
  if (kind === 'boolean')
    return (
      <label class="check">
        <input
          type="checkbox"
          checked={value === 'true'}
          onChange={({ currentTarget }) => onValue(String(currentTarget.checked))}
        />
        {label} {hint}
      </label>
    )
  if (kind === 'choice')
    return (
      <label class="input-field">
        {label}
        <select value={value} onChange={({ currentTarget }) => onValue(currentTarget.value)}>
          {!isRequired && <option value="">(none)</option>}
          {options.map((option) => (
            <option key={option} value={option}>
              {visibleLine(option, 100)}
            </option>
          ))}
        </select>
        {hint}
      </label>
    )
  const isNumber = kind !== 'text'
  return (
    <label class="input-field">
      {label}
      <input
        type="text"
        inputMode={isNumber ? 'decimal' : 'text'}
        required={isRequired}
        value={value}
        onInput={({ currentTarget }) => onValue(currentTarget.value)}
      />
      {hint}
    </label>
  )
}
