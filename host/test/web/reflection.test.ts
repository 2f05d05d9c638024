// A secret that comes back from a server that was sent it, in every way in which text can be something else at first.
import type { ServerResponse } from 'node:http'
import { gzipSync } from 'node:zlib'
import { describe, expect, it } from 'vitest'
import { openWeb } from './support.ts'

const value = 'tok/en+0123456789abcdef=='
const bodyMaxBytes = 5 * 1024 * 1024

/** The answer's text to a request that carried the secret. */
async function fetchEcho(
  echo: (response: ServerResponse, sent: string) => void,
  form: 'text' | 'raw' = 'text',
): Promise<string> {
  const test = await openWeb({
    servers: [
      (request, response) => echo(response, (request.headers.authorization ?? '').replace('Bearer ', '')),
    ],
    secrets: { TOKEN: { from: { env: 'TOKEN' }, hosts: ['site.test'] } },
    env: { TOKEN: value },
  })
  const headers = { authorization: 'Bearer {{TOKEN}}' }
  const answer = await test.fetch(`https://site.test:${test.ports[0]}/`, { headers, form })
  if (!answer.ok) throw new Error(answer.error.message)
  expect(test.records).toMatchObject([{ secrets: ['TOKEN'] }])
  return answer.value.content
}

describe('a secret that a server gives back', () => {
  it('is not put together by reading its JSON, whatever that escapes [G.04]', async () => {
    const unicode = [...value].map((one) => `\\u00${one.charCodeAt(0).toString(16)}`).join('')
    const text = await fetchEcho((response, sent) => {
      const body = `{"a":"${sent.replaceAll('/', '\\/')}","b":"${unicode}"}`
      response.writeHead(200, { 'content-type': 'application/json' }).end(body)
    })
    expect(JSON.parse(text)).toEqual({ a: '[redacted]', b: '[redacted]' })
  })

  it('is not hidden by a charset that its bytes are not in [G.04]', async () => {
    const text = await fetchEcho((response, sent) => {
      response.writeHead(200, { 'content-type': 'text/plain; charset=utf-16le' }).end(`${sent}.`)
    }, 'raw')
    expect(Buffer.from(text, 'utf16le').toString()).not.toContain('0123456789')
  })

  it('is found in bytes that are in another charset, and in packed ones [G.04]', async () => {
    for (const packed of [false, true]) {
      const text = await fetchEcho((response, sent) => {
        const body = Buffer.from(`you sent ${sent}`, packed ? 'utf8' : 'utf16le')
        response
          .writeHead(200, {
            'content-type': `text/plain; charset=${packed ? 'utf-8' : 'utf-16le'}`,
            ...(packed ? { 'content-encoding': 'gzip' } : {}),
          })
          .end(packed ? gzipSync(body) : body)
      })
      expect(text).toBe('you sent [redacted]')
    }
  })

  it('is not left in part where the page is cut in its middle [G.04]', async () => {
    const text = await fetchEcho((response, sent) => {
      const half = sent.slice(0, sent.length / 2)
      const filling = '<!--'.padEnd(bodyMaxBytes - half.length - 6, '.')
      response.writeHead(200, { 'content-type': 'text/html' }).end(`${filling}--><p>${sent}</p>`)
    })
    expect(text).not.toContain(value.slice(0, 4))
  })
})
