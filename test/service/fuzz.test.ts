// Requests made of the OpenAPI document, to the whole service: each answer is one that the document names, in its form.
import fc from 'fast-check'
import { expect, it, onTestFinished, vi } from 'vitest'
import { openApiDocument } from '#specs/service/openapi.ts'
import { Problem } from '#specs/service/resources.ts'
import type { Route } from '#specs/service/route.ts'
import { type RouteName, routes } from '#specs/service/routes.ts'
import { perTier } from '#specs/testing/tier.ts'
import { Host } from '../../host/index.ts'
import { changedRunId, runThatChanged } from '../../host/test/support/changed-run.ts'
import { heldRuns } from './queue-support.ts'
import { type JsonSchema, valuesOf } from './schema-values.ts'
import { serveHost } from './support.ts'

interface Operation {
  readonly operationId: RouteName
  readonly parameters?: readonly {
    readonly name: string
    readonly in: 'path' | 'query' | 'header'
    readonly required?: boolean
    readonly schema: JsonSchema
  }[]
  readonly requestBody?: { readonly content: Readonly<Record<string, { readonly schema: JsonSchema }>> }
  readonly responses: Readonly<Record<string, unknown>>
}

interface Document {
  readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>
  readonly components: { readonly schemas: Readonly<Record<string, JsonSchema>> }
}

const document = openApiDocument('0') as unknown as Document
const { schemas } = document.components
/** They need a VM, or remove the run that others are asked about. */
const leftOut: readonly RouteName[] = ['testRun', 'removeRun', 'resumeRun']
const operations = Object.entries(document.paths).flatMap(([place, methods]) =>
  Object.entries(methods)
    .filter(([, { operationId }]) => !leftOut.includes(operationId))
    .map(([method, operation]) => ({ place, method: method.toUpperCase(), operation })),
)

/** A request of an operation, with the values of its parameters by where they are. */
function requestsOf({ parameters = [], requestBody }: Operation) {
  const within = (where: 'path' | 'query' | 'header') =>
    fc.record(
      Object.fromEntries(
        parameters.filter((one) => one.in === where).map(({ name, schema }) => [name, textOf(name, schema)]),
      ),
      where === 'path' ? {} : { requiredKeys: [] },
    )
  const json = requestBody?.content['application/json']?.schema
  return fc.record({
    path: within('path'),
    query: within('query'),
    headers: within('header'),
    body: json === undefined ? fc.constant(undefined) : valuesOf(json, schemas),
  })
}

function textOf(name: string, schema: JsonSchema): fc.Arbitrary<string> {
  const values = valuesOf(schema, schemas).map((value) =>
    typeof value === 'string' ? value : JSON.stringify(value),
  )
  // Most requests are about a run that is there, and none waits for long.
  if (name === 'run') return fc.oneof({ weight: 3, arbitrary: fc.constant(changedRunId) }, values)
  return name === 'waitMs' ? fc.constantFrom('0', '1', '-1', 'x') : values
}

const isHeaderText = (text: string) => text !== '' && /^[\t\x20-\x7e]*$/.test(text) && text === text.trim()

it('answers requests made of its document as the document says, and continues [H.02]', async () => {
  const before = await runThatChanged({ 'a.txt': 'a\n' }, { 'a.txt': 'b\n' })
  const held = await heldRuns()
  // Each run that a request starts ends by its hook, without a VM.
  await held.release()
  const hook = { point: 'before-run' as const, command: [...held.command] }
  const host = new Host({ env: { ...before.env, PATH: process.env.PATH }, config: { hooks: [hook] } })
  onTestFinished(async () => {
    await vi.waitUntil(async () => (await host.runs.live()).size === 0, { timeout: 30_000 })
    await host.close()
  })
  const { send, logged, token } = await serveHost(host, { workspaces: [before.directory] })
  const given = fc.oneof(
    ...operations.map((one) => requestsOf(one.operation).map((request) => ({ ...one, ...request }))),
  )
  await fc.assert(
    fc.asyncProperty(given, async ({ place, method, operation, path: inPath, query, headers, body }) => {
      const name = operation.operationId
      const route: Route = routes[name]
      const filled = place.replaceAll(
        /\{([a-z]+)\}/gi,
        (_, key: string) => encodeURIComponent(inPath[key] ?? '') || '%20',
      )
      const sent = Object.entries(headers).filter(
        ([, text]) => typeof text === 'string' && isHeaderText(text),
      )
      const search = new URLSearchParams(
        Object.entries(query).filter((entry): entry is [string, string] => entry[1] !== undefined),
      )
      const answer = await send(method, `${filled}?${search}`, {
        headers: {
          ...(Object.fromEntries(sent) as Record<string, string>),
          ...(body === undefined ? {} : { 'content-type': 'application/json' }),
        },
        ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      })
      const about = [name, method, filled, answer.status, answer.text.slice(0, 1_000)]
      const isSaid = String(answer.status) in operation.responses || answer.status === 404
      // Of another kind: no server has the model, a machine without an image is not ready.
      const isFault = answer.status >= 500 && answer.status !== 503
      expect([...about, isSaid, isFault]).toEqual([...about, true, false])
      if (answer.status >= 400)
        expect([...about, Problem.safeParse(answer.json).error]).toEqual([...about, undefined])
      else if (route.reply.schema !== undefined)
        expect([...about, route.reply.schema.safeParse(answer.json).error]).toEqual([...about, undefined])
      expect(answer.text).not.toContain(token)
    }),
    { numRuns: perTier(150, 1_500) },
  )
  expect(logged.filter(({ level }) => level === 'error')).toEqual([])
}, 240_000)
