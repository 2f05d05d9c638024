/**
 * Questions to the person from the agent (`ask_user`) and its MCP servers: what answers one without a person, and which
 * answers are valid. Rules and modes can only block a question, since it asks for a preference and not for permission.
 */
import type { ApprovalRequest, ApprovalRule } from '#specs/protocol/approval.ts'
import { toCanonicalJson } from '#specs/protocol/canonical-json.ts'
import { limits } from '#specs/protocol/limits.ts'
import { askTool, isAnswerTo, UserAnswer, type UserQuestion } from '#specs/protocol/question.ts'
import { findLikelySecret } from '../secrets/likely-secret.ts'
import { type ApprovalAnswer, type ApprovalMode, type DecisionRecord, decisionByRule } from './decisions.ts'
import { matchRules } from './rules.ts'

/** Whether the request is, or claims to be, a question to the person. */
export function isUserQuestion({ tool, question }: Pick<ApprovalRequest, 'tool' | 'question'>): boolean {
  return tool === askTool || question !== undefined
}

interface QuestionScene {
  readonly mode: ApprovalMode
  readonly rules: readonly ApprovalRule[]
  readonly interactive: boolean
  /** The person's answer to all questions of the run. */
  readonly runAnswer: DecisionRecord | undefined
  /** Number of questions asked so far. */
  readonly asked: number
}

/**
 * The decision without a person; undefined if one must be asked. Rules match the displayed question, not the agent's
 * description of it.
 */
export function ruleQuestion(
  { tool, question }: Pick<ApprovalRequest, 'tool' | 'question'>,
  { mode, rules, interactive, runAnswer, asked }: QuestionScene,
): DecisionRecord | undefined {
  if (tool !== askTool || question === undefined) return noQuestion
  // A rule about servers does not cover the agent's own questions.
  const ruling = matchRules(rules, { tool, arguments: toCanonicalJson({ server: '', ...question }) })
  if (ruling?.effect === 'deny') return decisionByRule(ruling, 'deny')
  if (runAnswer !== undefined && ruling === undefined) return runAnswer
  if (asked >= limits.runMaxQuestions) return tooMany
  if (mode === 'none') return unanswered(question, 'option approvals.mode: none')
  return interactive ? undefined : unanswered(question, 'no user is available to answer')
}

/** The question's default, or a denial. @param why reason why no person answers */
export function unanswered({ defaultAnswer, server }: UserQuestion, why: string): DecisionRecord {
  const fixed = { scope: 'once', by: 'mode' } as const
  // The server would take the default for the person's answer.
  if (server !== undefined)
    return { ...fixed, decision: 'deny', rule: `${why}, and an MCP server is given no answer but a person’s` }
  return defaultAnswer === undefined
    ? {
        ...fixed,
        decision: 'deny',
        rule: `${why}, and the question has no default`,
        hint: 'no user is available to answer; decide yourself where you can, and say in your answer what you decided',
      }
    : {
        ...fixed,
        decision: 'allow',
        rule: `${why}; the question’s own default`,
        hint: 'no user was available to answer: this is your own default',
        answer: defaultAnswer,
      }
}

/** The decision by a person's answer; undefined if it does not have the requested form. */
export function settleQuestion(
  question: UserQuestion,
  { decision, scope, reach, hint, plan, answer }: ApprovalAnswer,
): DecisionRecord | undefined {
  if (reach !== undefined || plan !== undefined || scope === 'always') return undefined
  const byPerson = { by: 'person', ...(hint === undefined ? {} : { hint }) } as const
  if (decision === 'deny') return answer === undefined ? { decision, scope, ...byPerson } : undefined
  // An answer applies to this question only.
  const read = UserAnswer.safeParse(answer)
  if (scope !== 'once' || !read.success || !isAnswerTo(question, read.data)) return undefined
  if (findSecretFor(question, read.data) !== undefined) return undefined
  return { decision, scope, ...byPerson, answer: read.data }
}

/** The kind of secret in an answer that no MCP server may get, such as `an API key`; undefined if there is none. */
export function findSecretFor(
  { server, defaultAnswer }: UserQuestion,
  answer: UserAnswer,
): string | undefined {
  // The server already knows the values it proposed.
  if (server === undefined || typeof answer !== 'string' || answer === defaultAnswer) return undefined
  return findLikelySecret(answer)
}

/** Describes the accepted form of an answer, for a person whose answer was invalid. */
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
