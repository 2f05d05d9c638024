/** Serves the web page: files that hold nothing of a run and need no token. All data comes by the routes. */
import { createHash } from 'node:crypto'
import { promisify } from 'node:util'
import { gzip } from 'node:zlib'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import type { PageFiles } from './page-files.ts'

/** No script but the file, no code from text, no other server, no frame around it. */
export const pagePolicy = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src 'self'",
  "connect-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
  "require-trusted-types-for 'script'",
  // For the address of the worker, which is a constant.
  'trusted-types caisson-worker',
].join('; ')

const types: Readonly<Record<string, string>> = {
  html: 'text/html; charset=utf-8',
  js: 'text/javascript; charset=utf-8',
  css: 'text/css; charset=utf-8',
  svg: 'image/svg+xml',
}

interface Prepared {
  readonly type: string
  readonly etag: string
  readonly plain: Uint8Array
  readonly zipped: Uint8Array
}

export interface PageOptions {
  readonly read: () => Promise<PageFiles>
  /** Refuses what another site sends, as for every route. */
  readonly check: (request: FastifyRequest) => void
}

/** Adds `/`, `/answer` and `/page/{file}`. The files are read once, with the first request. */
export function addPage(app: FastifyInstance, { read, check }: PageOptions): void {
  let reading: Promise<ReadonlyMap<string, Prepared>> | undefined
  const prepared = async () => {
    reading ??= read().then(prepareAll)
    // A source that does not build is tried again once it is corrected.
    reading.catch(() => {
      reading = undefined
    })
    return await reading
  }
  const answer = async (
    name: string,
    request: FastifyRequest,
    reply: FastifyReply,
  ): Promise<FastifyReply> => {
    const file = (await prepared()).get(name)
    if (file === undefined) {
      reply.callNotFound()
      return reply
    }
    const { type, etag, plain, zipped } = file
    const isKnown = request.headers['if-none-match'] === etag
    const takesGzip = /\bgzip\b/.test(request.headers['accept-encoding'] ?? '')
    reply.headers({
      ...pageHeaders,
      etag,
      vary: 'accept-encoding',
      ...(takesGzip && !isKnown ? { 'content-encoding': 'gzip' } : {}),
    })
    if (isKnown) return reply.code(304).send()
    return reply.type(type).send(takesGzip ? zipped : plain)
  }
  const onRequest = async (request: FastifyRequest) => check(request)
  app.get('/', { onRequest }, (request, reply) => answer('index.html', request, reply))
  app.get('/answer', { onRequest }, (request, reply) => answer('index.html', request, reply))
  app.get<{ Params: { file: string } }>('/page/:file', { onRequest }, (request, reply) =>
    answer(request.params.file, request, reply),
  )
}

const pageHeaders = {
  // Asked about each time: an update of the service brings its page with it.
  'cache-control': 'no-cache',
  'content-security-policy': pagePolicy,
  'x-content-type-options': 'nosniff',
  'referrer-policy': 'no-referrer',
  'cross-origin-resource-policy': 'same-origin',
  'cross-origin-opener-policy': 'same-origin',
}

async function prepareAll(files: PageFiles): Promise<ReadonlyMap<string, Prepared>> {
  const entries = await Promise.all(
    [...files].map(async ([name, plain]) => {
      const digest = createHash('sha256').update(plain).digest('base64url').slice(0, 22)
      const type = types[name.split('.').at(-1) ?? ''] ?? 'application/octet-stream'
      return [name, { type, etag: `"${digest}"`, plain, zipped: await promisify(gzip)(plain) }] as const
    }),
  )
  return new Map(entries)
}
