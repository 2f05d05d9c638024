// The real command as a service with a real VM, before the SDK's own A2A client: a task, its question, and its changes.
import { readFile } from 'node:fs/promises'
import path from 'node:path'
import type { Task } from '@a2a-js/sdk'
import { expect, it } from 'vitest'
import { reply } from '#specs/testing/model-replies.ts'
import { startModelServer } from '#specs/testing/model-server.ts'
import { cliPlace } from '../../host/test/support/cli.ts'
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

const calls = [
  ['write_file', { path: 'new.txt', content: 'new\n' }],
  ['delete_file', { path: 'old.txt' }],
] as const

it('a task of another agent runs in a real VM, asks, ends with its answer and a diff, and changes no file [H.03 A.09 V.05]', async () => {
  await using model = await startModelServer(({ messages }) => {
    const call = calls[messages.filter(({ role }) => role === 'tool').length]
    return reply(
      call === undefined
        ? { text: 'It is done.' }
        : { calls: [{ id: `call${call[0].slice(0, 5)}`, name: call[0], arguments: call[1] }] },
    )
  })
  const place = await cliPlace(
    { 'old.txt': 'old\n' },
    { CAISSON_LLM_URL: model.baseUrl, CAISSON_MODEL: 'scripted' },
  )
  const service = place.start('serve', '--port', '0')
  await expect
    .poll(() => /listens on (http:\S+)/.exec(service.errors())?.[1], { timeout: 30_000 })
    .toBeTruthy()
  const url = /listens on (http:\S+)/.exec(service.errors())?.[1] ?? ''
  const token = (await readFile(path.join(place.home, 'service/token'), 'utf8')).trim()
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
