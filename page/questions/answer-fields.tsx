/** Fields for the answer to a question of the agent, by the form that the question requires. */
import { useId } from 'preact/hooks'
import { isAnswerTo, type UserAnswer, type UserQuestion } from '#specs/protocol/question.ts'
import { visibleLine } from '../parts/text.ts'

export function firstAnswer(question: UserQuestion | undefined): UserAnswer | '' {
  if (question?.defaultAnswer !== undefined) return question.defaultAnswer
  if (question?.kind === 'choices') return []
  if (question?.kind === 'confirm') return true
  return question?.options?.[0]?.value ?? ''
}

/** The answer in the form that the question requires. */
export function readAnswer(
  question: UserQuestion,
  given: UserAnswer,
): { ok: true; value: UserAnswer } | { ok: false; error: string } {
  const isNumber = question.kind === 'number'
  if (isNumber && String(given).trim() === '') return { ok: false, error: 'Type a number first' }
  const value = isNumber ? Number(given) : given
  if (isAnswerTo(question, value)) return { ok: true, value }
  return { ok: false, error: isNumber ? 'This is no number' : 'Choose one of the answers first' }
}

export function AnswerFields({
  question,
  value,
  onChange,
}: {
  readonly question: UserQuestion
  readonly value: UserAnswer
  readonly onChange: (value: UserAnswer) => void
}) {
  const id = useId()
  const { kind, options = [], allowOther = false } = question
  const typed = {
    value: String(value),
    onInput: ({ currentTarget }: { currentTarget: { value: string } }) => onChange(currentTarget.value),
  }
  if (kind === 'text')
    return (
      <label>
        Your answer
        <textarea rows={2} {...typed} />
      </label>
    )
  if (kind === 'number')
    return (
      <label>
        Your answer
        <input type="text" inputMode="decimal" {...typed} />
      </label>
    )
  if (kind === 'confirm')
    return (
      <fieldset class="choices">
        <legend>Your answer</legend>
        {[true, false].map((answer) => (
          <label key={String(answer)}>
            <input type="radio" name={id} checked={value === answer} onChange={() => onChange(answer)} />
            {answer ? 'Yes' : 'No'}
          </label>
        ))}
      </fieldset>
    )
  const chosen = Array.isArray(value) ? value : [String(value)]
  const isOther = kind === 'choice' && !options.some((option) => option.value === value)
  return (
    <fieldset class="choices">
      <legend>Your answer</legend>
      {options.map((option) => (
        <label key={option.value}>
          <input
            type={kind === 'choice' ? 'radio' : 'checkbox'}
            name={id}
            checked={chosen.includes(option.value)}
            onChange={({ currentTarget: { checked } }) =>
              onChange(
                kind === 'choice'
                  ? option.value
                  : checked
                    ? [...chosen, option.value]
                    : chosen.filter((other) => other !== option.value),
              )
            }
          />
          {visibleLine(option.label ?? option.value)}
        </label>
      ))}
      {allowOther && (
        <label>
          Something else
          <input
            type="text"
            value={isOther ? String(value) : ''}
            onInput={({ currentTarget }) => onChange(currentTarget.value)}
          />
        </label>
      )}
    </fieldset>
  )
}
