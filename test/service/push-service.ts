// A push service for tests, and a browser's side of it: decrypts by RFC 8291 with keys of its own, in code of its own.
import { createDecipheriv, createECDH, createHmac, randomBytes } from 'node:crypto'
import { createServer, type IncomingHttpHeaders } from 'node:http'
import type { AddressInfo } from 'node:net'
import { buffer } from 'node:stream/consumers'
import { onTestFinished } from 'vitest'

export interface Pushed {
  readonly path: string
  readonly headers: IncomingHttpHeaders
  readonly body: Buffer
}

/** Call it from within a test. @param statusOf of each answer, by path */
export async function servePush(statusOf: (path: string) => number = () => 201) {
  const got: Pushed[] = []
  const server = createServer((request, response) => {
    void buffer(request).then(
      (body) => {
        got.push({ path: request.url ?? '', headers: request.headers, body })
        response.writeHead(statusOf(request.url ?? '')).end()
      },
      () => undefined,
    )
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  onTestFinished(() => {
    server.close()
    server.closeAllConnections()
  })
  return { got, url: `http://127.0.0.1:${(server.address() as AddressInfo).port}` }
}

export function makeBrowser(endpoint: string) {
  const ecdh = createECDH('prime256v1')
  ecdh.generateKeys()
  const auth = randomBytes(16)
  const keys = { p256dh: ecdh.getPublicKey('base64url'), auth: auth.toString('base64url') }
  const decrypt = (body: Buffer): string => {
    const salt = body.subarray(0, 16)
    const idLength = body[20] ?? 0
    const theirs = body.subarray(21, 21 + idLength)
    const text = body.subarray(21 + idLength)
    const hmac = (key: Buffer, data: Buffer) => createHmac('sha256', key).update(data).digest()
    const one = Buffer.from([1])
    const info = Buffer.concat([Buffer.from('WebPush: info\0'), ecdh.getPublicKey(), theirs])
    const ikm = hmac(hmac(auth, ecdh.computeSecret(theirs)), Buffer.concat([info, one]))
    const prk = hmac(salt, ikm)
    const part = (name: string) => hmac(prk, Buffer.concat([Buffer.from(`Content-Encoding: ${name}\0`), one]))
    const key = part('aes128gcm').subarray(0, 16)
    const opened = createDecipheriv('aes-128-gcm', key, part('nonce').subarray(0, 12))
    opened.setAuthTag(text.subarray(-16))
    const plain = Buffer.concat([opened.update(text.subarray(0, -16)), opened.final()])
    if (plain.at(-1) !== 2) throw new Error('not the last record')
    return plain.subarray(0, -1).toString('utf8')
  }
  return { subscription: { endpoint, keys }, decrypt }
}
