/** The JSON schemas that the SDK ships for each version of the protocol: find what is wrong with the content of a frame. */
import { createRequire } from 'node:module'
import { type Schema, Validator } from '@cfworker/json-schema'
import * as z from 'zod'

/** Who handles a method: requests of an `agent` method come from the client, those of a `client` method go to it. */
type Side = 'agent' | 'client'
type Part = 'params' | 'result'
export type ProtocolVersion = 1 | 2

const Document = z.looseObject({
  $defs: z.record(
    z.string(),
    z.looseObject({ 'x-side': z.string().optional(), 'x-method': z.string().optional() }),
  ),
})
type Definitions = z.infer<typeof Document>['$defs']

export class FrameSchema {
  readonly #definitions: Definitions
  /** Names of definitions, by side, method and part. */
  readonly #names = new Map<string, string>()
  readonly #validators = new Map<string, Validator>()

  /** @param hasFork whether to take the schema that has forks of sessions, which is not stable */
  constructor(version: ProtocolVersion = 1, hasFork = false) {
    const file = `@agentclientprotocol/sdk/schema/v${version}/${hasFork ? 'schema.unstable' : 'schema'}.json`
    this.#definitions = Document.parse(createRequire(import.meta.url)(file)).$defs
    for (const [name, { 'x-side': side, 'x-method': method }] of Object.entries(this.#definitions))
      if (method !== undefined)
        this.#names.set(`${side} ${method} ${name.endsWith('Response') ? 'result' : 'params'}`, name)
  }

  /** What is wrong, in one line; undefined for what fits, and for a method that the protocol does not have. */
  findFault(side: Side, method: string, part: Part, value: unknown): string | undefined {
    const name = this.#names.get(`${side} ${method} ${part}`)
    if (name === undefined) return undefined
    const { valid, errors } = this.#validatorOf(name).validate(value)
    if (valid) return undefined
    const last = errors.at(-1)
    return `${name}${last === undefined ? '' : ` at ${last.instanceLocation}: ${last.error}`}`.slice(0, 300)
  }

  #validatorOf(name: string): Validator {
    const known = this.#validators.get(name)
    if (known !== undefined) return known
    const needed: Definitions = {}
    this.#collect(name, needed)
    const schema = { $ref: `#/$defs/${name}`, $defs: needed } as Schema
    const made = new Validator(schema, '2020-12', true)
    this.#validators.set(name, made)
    return made
  }

  /** The definition with all that it refers to: each validator indexes the whole of its schema. */
  #collect(name: string, into: Definitions): void {
    const definition = this.#definitions[name]
    if (definition === undefined || into[name] !== undefined) return
    into[name] = definition
    for (const [, other = ''] of JSON.stringify(definition).matchAll(/"#\/\$defs\/(\w+)"/g))
      this.#collect(other, into)
  }
}
