// The real command as a service, and a scripted model whose task writes one file and deletes another.
import { readFile } from 'node:fs/promises'
import path from 'node:path'
import { expect, onTestFinished } from 'vitest'
import { reply } from '#specs/testing/model-replies.ts'
import { startModelServer } from '#specs/testing/model-server.ts'
import { cliPlace } from '../../host/test/support/cli.ts'

const calls = [
  ['write_file', { path: 'new.txt', content: 'new\n' }],
  ['delete_file', { path: 'old.txt' }],
] as const

/** Call it from within a test. `seen`: the messages of each request of the agent, as JSON. */
export async function serveFileTask() {
  const seen: string[] = []
  const model = await startModelServer(({ messages }) => {
    seen.push(JSON.stringify(messages))
    const call = calls[messages.filter(({ role }) => role === 'tool').length]
    return reply(
      call === undefined
        ? { text: 'It is done.' }
        : { calls: [{ id: `call${call[0].slice(0, 5)}`, name: call[0], arguments: call[1] }] },
    )
  })
  onTestFinished(() => model[Symbol.asyncDispose]())
  const env = { CAISSON_LLM_URL: model.baseUrl, CAISSON_MODEL: 'scripted' }
  const place = await cliPlace({ 'old.txt': 'old\n' }, env)
  const service = place.start('serve', '--port', '0')
  const address = () => /listens on (http:\S+)/.exec(service.errors())?.[1]
  await expect.poll(address, { timeout: 30_000 }).toBeTruthy()
  const token = (await readFile(path.join(place.home, 'service/token'), 'utf8')).trim()
  return { place, service, url: address() ?? '', token, seen }
}
