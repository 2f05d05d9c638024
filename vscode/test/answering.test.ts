// Answers to questions, sent by the real client to a service that changes the question under its id.
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
  }
}

/** @param asksNow what the run asks by the time of the answer; undefined: nothing */
function openService(asksNow: string | undefined) {
  const answered: unknown[] = []
  const client = new ServiceClient({
    baseUrl: 'http://localhost',
    fetch: async (_, { method = 'GET', body } = {}) => {
      if (method === 'POST') answered.push(JSON.parse(String(body)))
      const approvals = asksNow === undefined ? [] : [resourceOf(asksNow)]
      return Response.json(method === 'POST' ? { taken: true } : { approvals })
    },
  })
  return { client, answered }
}

const question: Question = fromResource(resourceOf('ls'))

it('an answer is sent for the question that the person saw', async () => {
  const { client, answered } = openService('ls')
  await send(client, question, yes).catch(() => undefined)
  expect(answered).toEqual([{ decision: 'allow', scope: 'once' }])
})

it('an answer counts for no other question that the run asks under the same id', async () => {
  const { client, answered } = openService('rm -rf .')
  await expect(send(client, question, yes)).rejects.toThrow(
    'The question changed meanwhile, and nothing was answered. Read it again.',
  )
  expect(answered).toEqual([])
})

it('whether a question that is gone can be answered is for the service to say', async () => {
  const { client, answered } = openService(undefined)
  await send(client, question, yes).catch(() => undefined)
  expect(answered).toHaveLength(1)
})
