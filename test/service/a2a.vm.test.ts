// The real command as a service with a real VM, before the SDK's own A2A client: a task, its question, and its changes.
import type { Task } from '@a2a-js/sdk'
import { expect, it } from 'vitest'
import { readFiles } from '../../host/test/support/runs.ts'
import {
  allOf,
  callingAgent,
  dataPart,
  kindsOf,
  messageOf,
  questionsOf,
  stateOf,
  textsOf,
} from './a2a-support.ts'
import { serveFileTask } from './file-task.ts'

it('a task of another agent runs in a real VM, asks, ends with its answer and a diff, and changes no file [H.03 A.09 V.05]', async () => {
  const { place, service, url, token } = await serveFileTask()
  const client = await callingAgent(url, token)
  const request = messageOf('Replace old.txt by new.txt', { caisson: { workspace: place.workspace } })
  const asked = (await client.sendMessage(request)) as Task
  expect(stateOf(asked)).toBe('TASK_STATE_INPUT_REQUIRED')
  expect(textsOf(asked.status?.message?.parts).join('')).toContain('old.txt')
  const [question] = questionsOf(asked)
  const answer = dataPart({ questionId: question?.questionId, answer: { decision: 'yes, this once' } })
  const told = await allOf(client.sendMessageStream(messageOf([answer], { taskId: asked.id })))
  expect(kindsOf(told).slice(-3)).toEqual([
    ...['artifactUpdate', 'artifactUpdate'],
    'statusUpdate TASK_STATE_COMPLETED',
  ])
  const ended = await client.getTask({ tenant: '', id: asked.id })
  expect(ended.artifacts.map(({ parts }) => textsOf(parts).join('\n'))).toEqual([
    'It is done.',
    expect.stringContaining('+new'),
  ])
  expect(await readFiles(place.workspace)).toEqual({ 'old.txt': 'old\n' })
  service.child.kill('SIGTERM')
  expect((await service.ended).code).toBe(0)
  expect(await place.leftovers()).toEqual([])
}, 300_000)
