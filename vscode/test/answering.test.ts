// Answers to questions, sent by the real client to a service that refuses the digest of another question.
import { createHash } from 'node:crypto'
import { expect, it, vi } from 'vitest'
import { ServiceClient } from '../../client/index.ts'
import { fromResource, type Question } from '../../page/questions/question.ts'

vi.mock('vscode', () => ({}))

const { send } = await import('../questions/answering.ts')
const yes = { label: 'yes, this once', decision: 'allow', scope: 'once' } as const
const runId = `run-${'0'.repeat(20)}`

function resourceOf(command: string) {
  const given = JSON.stringify({ command })
  return {
    ...{ runId, at: 1 },
    approval: {
      ...{ approvalId: 'a-1', agentPath: 'root', stepId: 's-1', callId: 'c-1', tool: 'run_bash' },
      ...{ arguments: given, preview: command, kind: 'cooperative' as const, answers: [yes] },
    },
    digest: createHash('sha256').update(command).digest('hex'),
  }
}

/** @param asksNow what the run asks by the time of the answer */
function openService(asksNow: string) {
  const answered: unknown[] = []
  const client = new ServiceClient({
    baseUrl: 'http://localhost',
    fetch: async (_, { body } = {}) => {
      const answer = JSON.parse(String(body))
      if (answer.digest !== resourceOf(asksNow).digest)
        return Response.json(
          { type: 'x', title: 'x', status: 409, code: 'question_changed', detail: 'nothing was answered' },
          { status: 409, headers: { 'content-type': 'application/problem+json' } },
        )
      answered.push(answer)
      return Response.json({ taken: true })
    },
  })
  return { client, answered }
}

const question: Question = fromResource(resourceOf('ls'))

it('an answer names the question that the person saw by its digest', async () => {
  const { client, answered } = openService('ls')
  await send(client, question, yes)
  expect(answered).toEqual([{ decision: 'allow', scope: 'once', digest: question.digest }])
})

it('an answer counts for no other question that the run asks under the same id, and the person learns it', async () => {
  const { client, answered } = openService('rm -rf .')
  await expect(send(client, question, yes)).rejects.toThrow('nothing was answered')
  expect(answered).toEqual([])
})
