/** Lists the answers that a question accepts, for clients to offer as they are. Pure. */
import type { AccessQuestion, ApprovalRequest, OfferedAnswer } from '#specs/protocol/approval.ts'
import { limits } from '#specs/protocol/limits.ts'
import { commandTool } from './calls.ts'
import { planOf } from './plan-question.ts'

const scopeWords = { once: 'this once', run: 'for this run', always: 'permanently' } as const

/** Label of a yes to the same command. */
export const sameCommand = 'yes, exactly this command in this run'

/** Every call of a tool, in a label. */
export function everyCall(tool: string): string {
  return tool === commandTool ? `every command (${tool}) in this run` : `every ${tool} in this run`
}

/**
 * @param access of a question about network access
 * @param remembers whether a yes can be for the same command in this run
 */
export function offeredAnswers(
  request: Pick<ApprovalRequest, 'agentPath' | 'tool' | 'arguments' | 'question'>,
  access: AccessQuestion | undefined,
  remembers: boolean,
): OfferedAnswer[] {
  if (access !== undefined) return accessAnswers(access)
  if (request.question !== undefined)
    return [
      { label: 'answer', decision: 'allow', scope: 'once', needs: 'answer' },
      { label: 'no answer', decision: 'deny', scope: 'once' },
      { label: 'no answer, to no question of this run', decision: 'deny', scope: 'run' },
    ]
  const isPlan = planOf(request) !== undefined
  const every = isPlan ? 'every plan of this run' : everyCall(request.tool)
  const same: OfferedAnswer = { label: sameCommand, decision: 'allow', scope: 'run', reach: 'command' }
  return [
    { label: 'yes, this once', decision: 'allow', scope: 'once', ...(isPlan ? { takes: 'plan' } : {}) },
    ...(remembers ? [same] : []),
    { label: bounded(`yes, ${every}`), decision: 'allow', scope: 'run' },
    { label: 'no', decision: 'deny', scope: 'once' },
    { label: bounded(`no, to ${every}`), decision: 'deny', scope: 'run' },
  ]
}

function accessAnswers({ offers }: AccessQuestion): OfferedAnswer[] {
  const scopes = ['once', 'run', 'always'] as const
  const yes = offers.flatMap(({ reach, allows }) =>
    scopes.map(
      (scope): OfferedAnswer => ({
        label: bounded(`yes, ${scopeWords[scope]}: ${allows}`),
        decision: 'allow',
        scope,
        reach,
      }),
    ),
  )
  const no = scopes.map(
    (scope): OfferedAnswer => ({ label: `no, ${scopeWords[scope]}`, decision: 'deny', scope }),
  )
  return [...yes, ...no]
}

function bounded(text: string): string {
  return text.slice(0, limits.lineMaxChars).toWellFormed()
}
