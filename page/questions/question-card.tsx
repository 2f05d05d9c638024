/** A question of a run: what is asked with its preview, and the answers that the run accepts. */
import type { ComponentChildren } from 'preact'
import { useId, useState } from 'preact/hooks'
import type { OfferedAnswer } from '#specs/protocol/approval.ts'
import type { UserAnswer } from '#specs/protocol/question.ts'
import { hasDiff } from '../changes/diff-rows.ts'
import { DiffView } from '../changes/diff-view.tsx'
import { ActionButton, Failure, Untrusted } from '../parts/parts.tsx'
import { prettyJson, visible, visibleLine } from '../parts/text.ts'
import { runAddress } from '../session/route.ts'
import { actor, useSession } from '../session/session.ts'
import { AnswerFields, firstAnswer, readAnswer } from './answer-fields.tsx'
import { PlanReview, readPlanText } from './plan-review.tsx'
import { type Question, titleOf, untilOf } from './question.ts'

export interface QuestionCardProps {
  readonly question: Question
  /** Whether it links its run: in a list of several. */
  readonly showsRun?: boolean
  readonly onAnswered?: () => void
  /** Whether an answer may be for this once alone. */
  readonly isOnce?: boolean
}

export function QuestionCard({ question, showsRun = false, onAnswered, isOnce = false }: QuestionCardProps) {
  const { approval, access, answers, plan, runId } = question
  const { client } = useSession()
  const id = useId()
  const [hint, setHint] = useState('')
  const [answer, setAnswer] = useState<UserAnswer | ''>(() => firstAnswer(approval.question))
  const [planText, setPlanText] = useState<string>()
  const [problem, setProblem] = useState<string>()
  const send = async (offered: OfferedAnswer) => {
    const { decision, scope, reach, needs, takes } = offered
    const given =
      needs === 'answer' && approval.question !== undefined
        ? readAnswer(approval.question, answer)
        : undefined
    if (given?.ok === false) return setProblem(given.error)
    const changed = takes === 'plan' && planText !== undefined ? readPlanText(planText) : undefined
    if (changed?.ok === false) return setProblem(changed.error)
    setProblem(undefined)
    await client.call('answerApproval', {
      params: { run: runId, approval: approval.approvalId },
      body: {
        ...{ decision, scope, digest: question.digest, ...actor() },
        ...(reach === undefined ? {} : { reach }),
        ...(decision === 'deny' && hint.trim() !== '' ? { hint: hint.trim() } : {}),
        ...(given === undefined ? {} : { answer: given.value }),
        ...(changed === undefined ? {} : { plan: changed.value }),
      },
    })
    onAnswered?.()
  }
  const isUserQuestion = approval.question !== undefined
  const isWait = untilOf(approval) !== undefined
  const isToolCall = access === undefined && plan === undefined && !isUserQuestion && !isWait
  return (
    <article class="card question" aria-labelledby={`${id}-title`}>
      <header>
        <h3 id={`${id}-title`}>
          {titleOf(question)}{' '}
          {isToolCall && (
            <>
              <code class="tool">{visibleLine(approval.tool, 100)}</code>?
            </>
          )}
        </h3>
        <span class="question-meta">
          {isWait
            ? 'the clock answers'
            : approval.kind === 'cooperative'
              ? 'in the words of the agent'
              : 'asked by the host'}
          {approval.agentPath !== 'root' && <> · sub-agent {visibleLine(approval.agentPath.slice(5), 100)}</>}
          {approval.parentCallId !== undefined && ' · a program calls it'}
          {showsRun && (
            <>
              {' · '}
              <a href={runAddress(runId)}>Open the run</a>
            </>
          )}
        </span>
      </header>
      {access !== undefined && (
        <div class="stack-small">
          <code class="address">{visible(access.address)}</code>
          <p>{visible(access.because)}</p>
        </div>
      )}
      {approval.question?.server !== undefined && (
        <p class="hint">For the MCP server {visibleLine(approval.question.server, 100)}</p>
      )}
      {approval.question !== undefined && <p class="asked">{visible(approval.question.question)}</p>}
      {isToolCall && approval.because !== undefined && <p class="because">{visible(approval.because)}</p>}
      {plan !== undefined && <PlanReview plan={plan} text={planText} onText={setPlanText} />}
      {isWait && <p>The step waits for this time. It needs no answer; you can end the wait earlier.</p>}
      {plan === undefined && !isUserQuestion && !isWait && approval.preview !== '' && (
        <Preview text={approval.preview} />
      )}
      {approval.question !== undefined && (
        <AnswerFields question={approval.question} value={answer} onChange={setAnswer} />
      )}
      {problem !== undefined && <Failure text={problem} />}
      <Answers
        answers={isWait ? waitAnswers : isOnce ? answers.filter(({ scope }) => scope === 'once') : answers}
        onAnswer={send}
      >
        {!isWait && !isUserQuestion && (
          <label class="hint-field">
            With a no: what the agent should do instead
            <input type="text" value={hint} onInput={({ currentTarget }) => setHint(currentTarget.value)} />
          </label>
        )}
        {isToolCall && (
          <div class="stack-small">
            <h4>Arguments</h4>
            <Untrusted text={prettyJson(approval.arguments)} />
          </div>
        )}
      </Answers>
    </article>
  )
}

/** The narrowest yes and no are buttons; broader ones are a step away, so that nobody gives them by mistake. */
function Answers({
  answers,
  onAnswer,
  children,
}: {
  readonly answers: readonly OfferedAnswer[]
  readonly onAnswer: (answer: OfferedAnswer) => Promise<void>
  readonly children: ComponentChildren
}) {
  const [isOpen, setOpen] = useState(false)
  const yes = answers.find(({ decision }) => decision === 'allow')
  const no = answers.find(({ decision }) => decision === 'deny')
  const broader = answers.filter((answer) => answer !== yes && answer !== no)
  return (
    <div class="answers">
      <div class="row">
        {yes !== undefined && (
          <ActionButton class="primary" run={() => onAnswer(yes)}>
            {sentence(yes.label)}
          </ActionButton>
        )}
        {no !== undefined && (
          <ActionButton class="danger" run={() => onAnswer(no)}>
            {sentence(no.label)}
          </ActionButton>
        )}
        {(broader.length > 0 || hasDetails(children)) && (
          <button
            type="button"
            class="plain more-answers"
            aria-expanded={isOpen}
            onClick={() => setOpen(!isOpen)}
          >
            {isOpen ? 'Less' : 'More answers and details'}
          </button>
        )}
      </div>
      {isOpen && (
        <div class="stack">
          <div class="row">
            {broader.map((answer) => (
              <ActionButton
                key={`${answer.decision} ${answer.scope} ${answer.reach}`}
                class={answer.decision === 'deny' ? 'danger' : ''}
                run={() => onAnswer(answer)}
              >
                {sentence(answer.label)}
              </ActionButton>
            ))}
          </div>
          {children}
        </div>
      )}
    </div>
  )
}

/** Children are false where they are left out. */
function hasDetails(children: ComponentChildren): boolean {
  return Array.isArray(children) ? children.some(hasDetails) : Boolean(children)
}

/** Of a wait: its own words. */
const waitAnswers: readonly OfferedAnswer[] = [
  { label: 'continue now', decision: 'allow', scope: 'once' },
  { label: 'end the step', decision: 'deny', scope: 'once' },
]

function Preview({ text }: { readonly text: string }) {
  return hasDiff(text) ? <DiffView diff={text} /> : <Untrusted class="preview" text={text} />
}

function sentence(label: string): string {
  const text = visibleLine(label, 200)
  return text.charAt(0).toUpperCase() + text.slice(1)
}
