// What the host learns of a server's tools, by which it knows them again.
import { describe, expect, it } from 'vitest'
import { boundTools, digestTool, makeOffer } from '../../mcp/offer.ts'

const tool = {
  name: 'add',
  description: `Adds. ${'More of it. '.repeat(100)}`,
  inputSchema: { type: 'object', properties: { a: { type: 'number' } } },
  readOnlyHint: false,
}

describe('the digest of a tool', () => {
  it('is another one for whatever the model or the agent goes by, however far on in it [A.09]', () => {
    const others = [
      { ...tool, name: 'sub' },
      { ...tool, description: `${tool.description}!` },
      { ...tool, inputSchema: { ...tool.inputSchema, required: ['a'] } },
      // By it a call of an address may go without a question.
      { ...tool, readOnlyHint: true },
    ]
    const digests = [tool, ...others].map(digestTool)
    expect(new Set(digests).size).toBe(digests.length)
    const sorted = { ...tool, inputSchema: { properties: { a: { type: 'number' } }, type: 'object' } }
    expect(digestTool(sorted)).toBe(digestTool(tool))
  })
})

describe('the offer of a server', () => {
  it('has the beginning of each description on one line, and the tools that fit in a request [A.09]', () => {
    const config = { transport: 'stdio', command: 'node' } as const
    const offer = makeOffer('s', 'workspace', config, [{ ...tool, description: 'one\ntwo' }, tool])
    expect(offer.tools[0]?.description).toBe('one two')
    expect(offer.tools[1]?.description.length).toBeLessThanOrEqual(300)
    const many = Array.from({ length: 200 }, (_, at) => ({ ...tool, name: `t${at}` }))
    expect(boundTools(many)).toMatchObject({ leftOut: 72 })
    const large = { ...tool, name: 'large', inputSchema: { x: 'y'.repeat(250_000) } }
    const { tools, leftOut } = boundTools([large, tool])
    expect([tools.map(({ name }) => name), leftOut]).toEqual([['add'], 1])
  })
})
