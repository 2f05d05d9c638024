// What requests and imported runs get where nobody is signed in to an MCP server.
import { describe, expect, it } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { signInServersOf, tokenNameOf } from '../mcp/oauth-settings.ts'
import { Secrets } from '../secrets/secrets.ts'
import { McpSignIns } from '../sign-in/mcp-sign-ins.ts'
import { withTokens } from '../sign-in/server-token.ts'
import { resolveFolders } from '../state/folders.ts'
import { withValues } from '../stored-run.ts'

const url = 'https://mcp.example.com/mcp'
const tracker = { transport: 'streamable-http', url } as const
const placeholder = `Bearer {{${tokenNameOf({ name: 'tracker', url })}}}`

async function signedOut() {
  const home = await temporaryFolder('signed-out')
  const env = { HOME: home, CAISSON_HOME: home }
  const unused = () => Promise.reject(new Error('no request was expected'))
  const place = { env, folders: resolveFolders(env) }
  const signIns = new McpSignIns({ place, resolveKey: unused, fetchFor: unused }, async () => ({}))
  return await withTokens({ tracker }, signInServersOf({ tracker: { url } }), signIns)
}

it('a run that began with a sign-in and has none now learns the server and the command [A.09]', async () => {
  const { servers, tokens } = await signedOut()
  expect(servers).toEqual({ tracker })
  const secrets = new Secrets({}, () => Promise.reject(new Error('there are none')), undefined, { tokens })
  const target = {
    scheme: 'https',
    host: 'mcp.example.com',
    port: 443,
    path: '/mcp',
    method: 'POST',
  } as const
  const filled = await secrets.putInto({ authorization: placeholder }, target)
  expect(filled).toMatchObject({
    ok: false,
    error: expect.objectContaining({
      message: expect.stringMatching(/MCP server tracker needs a sign-in; .*caisson mcp login tracker/),
    }),
  })
})

describe('an imported run with a server that takes sign-ins', () => {
  const task = { mcpServers: { tracker } } as unknown as Parameters<typeof withValues>[0]
  const withheld = { tracker: { env: [], headers: ['Authorization'] } }
  const configured = { tracker }

  it('asks for the sign-in where there is none [R.09 A.09]', () => {
    expect(() => withValues(task, withheld, { own: { tracker }, configured })).toThrow(
      expect.objectContaining({
        code: 'invalid_options',
        message: expect.stringContaining('sign in to it: caisson mcp login tracker'),
      }),
    )
  })

  it('takes the token of a sign-in here, for the same address alone [R.09 A.09]', () => {
    const signedIn = { ...tracker, headers: { Authorization: placeholder } }
    const { mcpServers } = withValues(task, withheld, { own: { tracker: signedIn }, configured })
    expect(mcpServers?.tracker?.headers).toEqual({ Authorization: placeholder })
    const other = { tracker: { ...tracker, url: 'https://evil.example.com/mcp' } }
    const elsewhere = { mcpServers: other } as unknown as typeof task
    expect(() => withValues(elsewhere, withheld, { own: { tracker: signedIn }, configured: {} })).toThrow(
      'needs values that no archive has: Authorization',
    )
  })
})
