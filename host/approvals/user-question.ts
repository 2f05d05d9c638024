/**
 * Questions of the agent to the person (`ask_user`), its MCP servers' among them: what settles one without a person, and what of theirs is an answer to it.
 * No rule and no mode answers one, for it asks what the person wants and not what may be done; they can only keep it back.
 */
import type { ApprovalRequest, ApprovalRule } from '#specs/protocol/approval.ts'
import { toCanonicalJson } from '#specs/protocol/canonical-json.ts'
import { limits } from '#specs/protocol/limits.ts'
import { askTool, isAnswerTo, UserAnswer, type UserQuestion } from '#specs/protocol/question.ts'
import { findLikelySecret } from '../secrets/likely-secret.ts'
import type { ApprovalAnswer, ApprovalMode } from './approval-types.ts'
import { type DecisionRecord, decisionByRule } from './decisions.ts'
import { matchRules } from './rules.ts'

/** Whether the request is, or claims to be, a question to the person. */
export function isUserQuestion({ tool, question }: Pick<ApprovalRequest, 'tool' | 'question'>): boolean {
  return tool === askTool || question !== undefined
}

export interface QuestionScene {
  readonly mode: ApprovalMode
  readonly rules: readonly ApprovalRule[]
  readonly interactive: boolean
  /** What the person said to every question of the run. */
  readonly standing: DecisionRecord | undefined
  /** Questions that they were asked so far. */
  readonly asked: number
}

/** What needs no person; undefined when one must be asked. Rules look at the question that is shown, not at what the agent says of it. */
export function ruleQuestion(
  { tool, question }: Pick<ApprovalRequest, 'tool' | 'question'>,
  { mode, rules, interactive, standing, asked }: QuestionScene,
): DecisionRecord | undefined {
  if (tool !== askTool || question === undefined) return noQuestion
  // A rule about servers is none about the agent's own questions.
  const rule = matchRules(rules, { tool, arguments: toCanonicalJson({ server: '', ...question }) })
  if (rule?.effect === 'deny') return decisionByRule(rule, 'deny')
  if (standing !== undefined && rule === undefined) return standing
  if (asked >= limits.runMaxQuestions) return tooMany
  if (mode === 'none') return unanswered(question, '--approve none')
  return interactive ? undefined : unanswered(question, 'nobody is there to answer')
}

/** The question's own default, or a denial. @param why nobody answers */
export function unanswered({ defaultAnswer, server }: UserQuestion, why: string): DecisionRecord {
  const fixed = { scope: 'once', by: 'mode' } as const
  // It would take the answer for the person's.
  if (server !== undefined)
    return { ...fixed, decision: 'deny', rule: `${why}, and an MCP server is given no answer but a person’s` }
  return defaultAnswer === undefined
    ? {
        ...fixed,
        decision: 'deny',
        rule: `${why}, and the question has no default`,
        hint: 'nobody is there to answer; decide yourself where you can, and say in your answer what you decided',
      }
    : {
        ...fixed,
        decision: 'allow',
        rule: `${why}; the question’s own default`,
        hint: 'nobody was there to answer: this is the default that you gave yourself',
        answer: defaultAnswer,
      }
}

/** What a person's answer settles; undefined where it has not the form that the question asks for. */
export function settleQuestion(
  question: UserQuestion,
  { decision, scope, reach, hint, plan, answer }: ApprovalAnswer,
): DecisionRecord | undefined {
  if (reach !== undefined || plan !== undefined || scope === 'always') return undefined
  const said = { by: 'person', ...(hint === undefined ? {} : { hint }) } as const
  if (decision === 'deny') return answer === undefined ? { decision, scope, ...said } : undefined
  // An answer is to this question alone.
  const read = UserAnswer.safeParse(answer)
  if (scope !== 'once' || !read.success || !isAnswerTo(question, read.data)) return undefined
  if (findSecretFor(question, read.data) !== undefined) return undefined
  return { decision, scope, ...said, answer: read.data }
}

/** What the answer seems to hold that no MCP server is to be told, such as `an API key`; undefined: nothing of the kind. */
export function findSecretFor(
  { server, defaultAnswer }: UserQuestion,
  answer: UserAnswer,
): string | undefined {
  // What it proposed itself it knows.
  if (server === undefined || typeof answer !== 'string' || answer === defaultAnswer) return undefined
  return findLikelySecret(answer)
}

/** What an answer to the question looks like, in words for who gave another. */
export function describeAnswer({ kind, options = [], allowOther, server }: UserQuestion): string {
  const values = options.map(({ value }) => JSON.stringify(value)).join(', ')
  switch (kind) {
    case 'text':
      return server === undefined ? 'a text' : 'a text without passwords, keys and tokens'
    case 'number':
      return 'a number'
    case 'confirm':
      return 'true or false'
    case 'choice':
      return `one of ${values}${allowOther === true ? ', or another text' : ''}`
    case 'choices':
      return `a list of any of ${values}, none twice`
  }
}

const noQuestion: DecisionRecord = {
  decision: 'deny',
  scope: 'once',
  by: 'mode',
  rule: `a question to the person comes from ${askTool}, with what is asked`,
}

const tooMany: DecisionRecord = {
  decision: 'deny',
  scope: 'once',
  by: 'mode',
  rule: `${limits.runMaxQuestions} questions were asked in this run`,
  hint: `${limits.runMaxQuestions} questions were asked in this run, and no more are: decide yourself, and say in your answer what you decided`,
}
