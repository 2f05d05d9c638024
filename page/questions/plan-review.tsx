/** A plan to approve: its steps, and the plan as text for a person who changes it. */
import { Plan } from '#specs/protocol/plan.ts'
import { visible, visibleLine } from '../parts/text.ts'

export function readPlanText(text: string): { ok: true; value: Plan } | { ok: false; error: string } {
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch (error) {
    return {
      ok: false,
      error: `The plan is not JSON: ${error instanceof Error ? error.message : String(error)}`,
    }
  }
  const parsed = Plan.safeParse(value)
  if (parsed.success) return { ok: true, value: parsed.data }
  const [issue] = parsed.error.issues
  return { ok: false, error: `The plan does not fit: ${issue?.path.join('.')}: ${issue?.message}` }
}

export function PlanReview({
  plan,
  text,
  onText,
}: {
  readonly plan: Plan
  /** The changed plan; undefined: it is as the agent made it. */
  readonly text: string | undefined
  readonly onText: (text: string | undefined) => void
}) {
  return (
    <div class="stack-small">
      <p class="asked">{visible(plan.goal)}</p>
      <ol class="plan-review">
        {plan.steps.map((step) => (
          <li key={step.id}>
            <details>
              <summary>
                <strong>{visibleLine(step.title)}</strong>
                <span class="hint">
                  {step.kind === 'agent' && ' sub-agent'}
                  {step.needs.length > 0 && ` after ${step.needs.join(', ')}`}
                  {step.writes.length > 0 && ` · writes ${visibleLine(step.writes.join(', '), 120)}`}
                </span>
              </summary>
              <pre class="untrusted">{visible(step.instructions)}</pre>
            </details>
          </li>
        ))}
      </ol>
      {text === undefined ? (
        <button type="button" onClick={() => onText(JSON.stringify(plan, null, 2))}>
          Change the plan
        </button>
      ) : (
        <label>
          The plan as JSON; “yes, this once” runs it as it is here
          <textarea
            class="code"
            rows={12}
            spellcheck={false}
            value={text}
            onInput={({ currentTarget }) => onText(currentTarget.value)}
          />
          <button type="button" onClick={() => onText(undefined)}>
            Use the agent's plan
          </button>
        </label>
      )}
    </div>
  )
}
