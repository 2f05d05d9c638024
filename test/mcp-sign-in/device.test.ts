// The flow for devices with a real authorization server: clients with a secret, and polls that are lost.
import type { IncomingMessage, ServerResponse } from 'node:http'
import { describe, expect, it } from 'vitest'
import { signInByDevice } from '../../host/sign-in/device.ts'
import type { GrantParts } from '../../host/sign-in/grants.ts'
import { json, machineSecret, OAuthWorld } from './oauth-world.ts'

const methods = ['client_secret_basic', 'client_secret_post'] as const

function signIn(world: OAuthWorld, method: (typeof methods)[number]) {
  const { issuer } = world
  const metadata = {
    ...{ issuer, token_endpoint: `${issuer}/token`, response_types_supported: [] },
    device_authorization_endpoint: `${issuer}/device/auth`,
    token_endpoint_auth_methods_supported: [method],
  } as unknown as NonNullable<GrantParts['server']['metadata']>
  const client = { client_id: `device+${method}`, client_secret: machineSecret, issuer }
  const server = { url: issuer, issuer, metadata, resource: world.mcpUrl }
  const person = world.person()
  return signInByDevice(
    { server, client, fetch: world.fetch() },
    {
      scope: 'openid read',
      signal: AbortSignal.timeout(20_000),
      intervalMs: 200,
      onCode: (shown) => void person.showCode(shown, issuer),
    },
  )
}

describe('a sign-in by device', () => {
  it.each(methods)(
    'shows who the client is by %s, with any characters in its secret [A.09]',
    async (method) => {
      await using world = await OAuthWorld.open()
      expect(await signIn(world, method)).toMatchObject({ token_type: 'Bearer' })
    },
  )

  it.each([
    ['cut', (response: ServerResponse) => response.destroy()],
    ['answered with 503', (response: ServerResponse) => response.writeHead(503).end('busy')],
    [
      'refused for now',
      (response: ServerResponse) => json(response, 503, { error: 'temporarily_unavailable' }),
    ],
  ])('continues after a poll that is %s [A.09]', async (_, answer) => {
    await using world = await OAuthWorld.open()
    let lost = 0
    world.issuerAnswer = (request: IncomingMessage, response: ServerResponse) => {
      if (request.url !== '/token' || lost >= 2) return false
      lost += 1
      answer(response)
      return true
    }
    expect(await signIn(world, 'client_secret_basic')).toMatchObject({ token_type: 'Bearer' })
    expect(lost).toBe(2)
  })

  it('ends with an answer that refuses it [A.09]', async () => {
    await using world = await OAuthWorld.open()
    world.issuerAnswer = (request, response) => {
      if (request.url === '/token') json(response, 400, { error: 'access_denied' })
      return request.url === '/token'
    }
    await expect(signIn(world, 'client_secret_basic')).rejects.toMatchObject({ code: 'access_denied' })
    expect(world.asked.filter((path) => path === 'POST /token')).toHaveLength(1)
  })
})
