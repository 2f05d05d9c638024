/** One question of each kind that a run puts at a terminal, shared by the tests of keys typed while it appears. */
import type { AccessQuestion } from '#specs/protocol/approval.ts'
import type { UserQuestion } from '#specs/protocol/question.ts'

const access: AccessQuestion = {
  from: 'agent',
  address: 'https://api.example.com/',
  because: 'ask',
  offers: [
    { reach: 'host', allows: 'https connections to api.example.com' },
    { reach: 'suffix', allows: 'https connections to *.example.com' },
  ],
}
const plan = { goal: 'g', steps: [{ id: 'a', description: 'Do a', acceptance: 'done' }] }
const options = [{ value: 'csv' }, { value: 'json' }]
const call = { tool: 'delete_file', arguments: '{"path":"a"}' }
const ask = { tool: 'ask_user', arguments: '{}' }

interface Asked {
  readonly tool: string
  readonly arguments: string
  readonly access?: AccessQuestion
  readonly question?: UserQuestion
}

const questions = {
  'a call': call,
  'an MCP server': { tool: 'use_mcp_server', arguments: '{"server":"clock"}' },
  'network access': { ...call, access },
  'a plan': { tool: 'submit_plan', arguments: JSON.stringify(plan) },
  'a choice of the agent': { ...ask, question: { question: 'q', kind: 'choice', options } },
  'a yes or no of the agent': { ...ask, question: { question: 'q', kind: 'confirm' } },
  'a text of the agent': { ...ask, question: { question: 'q', kind: 'text' } },
} satisfies Record<string, Asked>

export type AskedKind = keyof typeof questions
export const askedQuestions: Readonly<Record<AskedKind, Asked>> = questions

/** What came of the keys of one run. */
export interface TypedOutcome {
  /** Answers given to the question, and interruptions. */
  readonly answers: readonly unknown[]
  /** Messages sent to the agent. */
  readonly sent: readonly string[]
  /** The message that was begun and not sent when the run ended. */
  readonly unsent: string
  /** Whether the question's prompt reads keys. */
  readonly isListening: boolean
  /** Bytes that the terminal passed on. */
  readonly received: number
  /** The longest time between two keys since the question appeared. */
  readonly longestGapMs: number
}
