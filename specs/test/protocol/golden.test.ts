// One message of every method as it stands on the wire: a change of the protocol changes these files, or breaks here.
import { readdirSync, readFileSync } from 'node:fs'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { renderEventDocument } from '#specs/node/event-document.ts'
import { computeProtocolDigest } from '#specs/node/protocol-digest.ts'
import { renderDigestFile, renderProtocolDocument } from '#specs/node/protocol-document.ts'
import { protocolSha256 } from '#specs/protocol/digest.ts'
import { type Method, methods } from '#specs/protocol/methods.ts'

const specs = path.join(import.meta.dirname, '../..')
const folder = path.join(specs, 'testing/golden')
const fileOf = (method: Method): string => `${method.name.replace('/', '-')}.golden.json`

interface Golden {
  method: string
  params: unknown
  result?: unknown
}

describe('the golden message', () => {
  it.each(methods)('of $name is accepted and comes out unchanged [C.05]', (method: Method) => {
    const golden = JSON.parse(readFileSync(path.join(folder, fileOf(method)), 'utf8')) as Golden
    expect(golden.method).toBe(method.name)
    expect(JSON.stringify(method.params.parse(golden.params))).toBe(JSON.stringify(golden.params))
    expect('result' in golden).toBe(method.kind === 'request')
    if (method.kind === 'request') {
      expect(JSON.stringify(method.result.parse(golden.result))).toBe(JSON.stringify(golden.result))
    }
  })

  it.each(methods)('of $name is refused with a field more [C.02]', (method: Method) => {
    const golden = JSON.parse(readFileSync(path.join(folder, fileOf(method)), 'utf8')) as Golden
    expect(method.params.safeParse({ ...(golden.params as object), more: 1 }).success).toBe(false)
  })

  it('exists for each method and nothing else [C.05]', () => {
    expect(readdirSync(folder).sort()).toEqual(methods.map(fileOf).sort())
  })
})

describe('what is generated from the schemas', () => {
  it('is current: otherwise run npm run protocol [S1.15, C.05]', () => {
    expect(readFileSync(path.join(specs, 'protocol.md'), 'utf8')).toBe(renderProtocolDocument())
    expect(readFileSync(path.join(specs, 'protocol/digest.ts'), 'utf8')).toBe(renderDigestFile())
    expect(protocolSha256).toBe(computeProtocolDigest())
  })
})

it('docs/events.md is current: each event and delta with its fields and an example that its schema accepts [S1.10 S1.12]', () => {
  expect(readFileSync(path.join(specs, '../docs/events.md'), 'utf8')).toBe(renderEventDocument())
})
