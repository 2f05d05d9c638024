/** The OpenAPI 3.1 document of the service, made from its routes. Schemas with a name of their own are components. */
import * as z from 'zod'
import { named, Problem } from './resources.ts'
import type { Route } from './route.ts'
import { routes } from './routes.ts'

type Json = Record<string, unknown>

/** What every route with a scope can answer, and every route. */
const refusalTexts: Readonly<Record<number, string>> = {
  400: 'The request does not fit its schema',
  401: 'No valid token, API key or JWT',
  403: 'The key or JWT lacks the scope, or the request comes from another origin',
  404: 'There is no such thing',
  409: 'Not possible now',
  413: 'The body is too large',
  415: 'The body is not of the media type',
  422: 'The idempotency key was used for another request',
  429: 'Too many requests, or a quota of the caller is used up',
  500: 'An internal error',
  503: 'The service or this machine cannot do it now',
}

export function openApiDocument(version: string): Json {
  const registry = z.registry<{ id: string }>()
  for (const [id, schema] of Object.entries(named)) registry.add(schema, { id })
  const parts: [string, z.ZodType][] = []
  const paths: Record<string, Json> = {}
  for (const [name, route] of Object.entries(routes) as [string, Route][]) {
    const path = paths[route.path] ?? {}
    path[route.method.toLowerCase()] = describeRoute(name, route, (schema, id) => {
      if (registry.get(schema) === undefined) {
        registry.add(schema, { id })
        parts.push([id, schema])
      }
      return { $ref: `#/components/schemas/${registry.get(schema)?.id ?? id}` }
    })
    paths[route.path] = path
  }
  return {
    openapi: '3.1.0',
    info: {
      title: 'Caisson',
      version,
      summary: 'Runs of an AI agent in a VM: start, watch, answer, review and apply',
      license: { name: 'MIT', identifier: 'MIT' },
    },
    security: [{ token: [] }, { jwt: [] }],
    paths,
    components: {
      securitySchemes: {
        token: { type: 'http', scheme: 'bearer', description: 'The token of the owner, or an API key' },
        jwt: {
          ...{ type: 'http', scheme: 'bearer', bearerFormat: 'JWT' },
          description:
            'A JWT of the issuer that the service was started with, if any; its claim `scope` or `scp` has the scopes',
        },
      },
      schemas: componentsOf(registry),
    },
  }
}

const binary: Json = { type: 'string', format: 'binary' }

/** Names a schema as a component, and refers to it. */
type Refer = (schema: z.ZodType, id: string) => Json

function describeRoute(name: string, route: Route, refer: Refer): Json {
  const { summary, scope, params, query, body, upload, reply, known, refusals = [], isIdempotent } = route
  const parameters = [
    ...parametersOf('path', params),
    ...parametersOf('query', query),
    ...(isIdempotent === true
      ? [
          {
            name: 'Idempotency-Key',
            in: 'header',
            description: 'A request with the same key and body is carried out once',
            schema: { type: 'string', minLength: 1, maxLength: 200 },
          },
        ]
      : []),
  ]
  const answers = [
    ...(params === undefined && query === undefined && body === undefined ? [] : [400]),
    ...(scope === null ? [] : [401, 429]),
    403,
    ...(body === undefined && upload === undefined ? [] : [413, 415]),
    ...refusals,
    500,
    503,
  ]
  return {
    operationId: name,
    summary,
    ...(scope === null ? { security: [] } : { 'x-scope': scope }),
    ...(parameters.length === 0 ? {} : { parameters }),
    ...(body === undefined
      ? {}
      : {
          requestBody: {
            required: !body.safeParse(undefined).success,
            content: { 'application/json': { schema: refer(body, `${name}Body`) } },
          },
        }),
    ...(upload === undefined
      ? {}
      : { requestBody: { required: true, content: { [upload]: { schema: binary } } } }),
    responses: {
      ...(known === undefined ? {} : { 200: { description: known, ...contentOf(name, route, refer) } }),
      [reply.status]: {
        description: reply.description,
        ...(contentOf(name, route, refer) ?? {}),
      },
      ...Object.fromEntries(
        answers.toSorted().map((status) => [
          status,
          {
            description: refusalTexts[status] ?? 'Refused',
            content: { 'application/problem+json': { schema: refer(Problem, 'Problem') } },
          },
        ]),
      ),
    },
  }
}

function contentOf(name: string, { reply }: Route, refer: Refer): Json | undefined {
  const content: Json = {}
  if (reply.schema !== undefined)
    content['application/json'] = { schema: refer(reply.schema, `${name}Reply`) }
  if (reply.type !== undefined && reply.type !== 'application/json')
    content[reply.type] = { schema: isBytes(reply.type) ? binary : { type: 'string' } }
  return Object.keys(content).length === 0 ? undefined : { content }
}

function isBytes(type: Route['reply']['type']): boolean {
  return type === 'application/x-tar' || type === 'image/*'
}

function parametersOf(place: 'path' | 'query', schema: z.ZodObject | undefined): Json[] {
  if (schema === undefined) return []
  const described = toJson(schema) as { properties?: Record<string, Json>; required?: string[] }
  return Object.entries(described.properties ?? {}).map(([name, property]) => ({
    name,
    in: place,
    required: place === 'path' || described.required?.includes(name) === true,
    schema: property,
  }))
}

function componentsOf(registry: z.core.$ZodRegistry<{ id: string }>): Json {
  const { schemas } = z.toJSONSchema(registry, {
    uri: (id) => `#/components/schemas/${id}`,
    unrepresentable: 'any',
    io: 'input',
  })
  return Object.fromEntries(Object.entries(schemas).map(([id, schema]) => [id, plain(schema)]))
}

function toJson(schema: z.ZodType): Json {
  return plain(z.toJSONSchema(schema, { unrepresentable: 'any', io: 'input' }))
}

/** Without the fields that stand once for the whole document. */
function plain(schema: object): Json {
  const { $schema: _, $id: __, ...rest } = schema as Json
  return rest
}
