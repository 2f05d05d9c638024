/** Golden streams, and a provider that is asked through the library against a server of scripted bytes. */
import { readFileSync } from 'node:fs'
import path from 'node:path'
import {
  type ModelServer,
  type Script,
  type ServerReply,
  startModelServer,
} from '#specs/testing/model-server.ts'
import { createLLMEnvironment } from '../../environment/environment.ts'
import { generate, type LLMRequest } from '../../generate/generate.ts'
import type { ProviderConfig, ProviderKind } from '../../providers/config.ts'

export const testKey = 'sk-test-0123456789-abcdefghij'

export function readGolden(name: string): string {
  return readFileSync(path.join(import.meta.dirname, '../../../specs/testing/provider-streams', name), 'utf8')
}

/** The server's address without the path of OpenAI's protocol. */
export function originOf(server: ModelServer): string {
  return server.baseUrl.replace(/\/v1$/, '')
}

export const weather = {
  get_weather: {
    description: 'The weather',
    parameters: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
  },
  now: { description: 'The time', parameters: { type: 'object', properties: {} } },
}

/** Asks one question of `kind`, and gives the answer with what the server was asked. */
export async function askKind(
  kind: ProviderKind,
  script: Script | readonly ServerReply[],
  request: Partial<LLMRequest> = {},
  config: ProviderConfig = {},
) {
  await using server = await startModelServer(script)
  const base =
    kind === 'anthropic' || kind === 'google' || kind === 'azure' ? originOf(server) : server.baseUrl
  await using environment = createLLMEnvironment({
    providers: { [kind]: { apiKey: testKey, baseUrl: base, maxAttempts: 1, ...config } },
  })
  const answer = await generate({
    environment,
    provider: kind,
    model: 'm',
    messages: [{ role: 'user', content: 'hello' }],
    ...request,
  }).then(
    (value) => ({ ok: true as const, value }),
    (error: unknown) => ({ ok: false as const, error }),
  )
  return { answer, asked: server.asked }
}
