import { writeFile } from 'node:fs/promises'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import * as z from 'zod'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { defineHostTool, type HostToolDefinition, prepareHostTools } from '../../tools/host-tools.ts'
import { requirePossible, toolListOf } from '../../tools/tool-list.ts'

const plain: HostToolDefinition = {
  description: 'Does it.',
  inputSchema: z.strictObject({ id: z.string(), count: z.int().default(1) }),
  execute: () => 'done',
}

describe('tools of an application', () => {
  it('have a name that no model could take for another tool’s, or the run does not start [S2.11, S2.09]', () => {
    for (const name of ['read_file', 'Read-File', 'shell_cmd', 'grep', 'use_mcp_server', 'submit_plan'])
      expect(() => prepareHostTools({ [name]: plain }), name).toThrow(/name of a tool of the agent/)
    expect(() => prepareHostTools({ look_up: plain, 'Look-Up': plain })).toThrow('two host tools')
    for (const name of ['', 'with space', 'ünï', 'x'.repeat(65), '1st'])
      expect(() => prepareHostTools({ [name]: plain }), name).toThrow(
        expect.objectContaining({ code: 'invalid_options' }),
      )
  })

  it('are not waited for where a schema takes forever over what a guest wrote [T.02]', () => {
    const pattern = '^(a+)+$'
    const json = { type: 'object', properties: { id: { type: 'string', pattern } } }
    const zod = z.object({ id: z.string().regex(new RegExp(pattern)) })
    for (const inputSchema of [json, zod]) {
      const tool = prepareHostTools({ it: { ...plain, inputSchema } }).get('it')
      expect(tool?.readInput({ id: `${'a'.repeat(40)}!` })).toMatchObject({
        ok: false,
        error: expect.stringContaining('takes too long'),
      })
      expect(tool?.readInput({ id: 'aaa' })).toMatchObject({ ok: true })
    }
  })

  it('are offered sorted, with a schema of an object that a model is shown [S2.11]', () => {
    const tools = prepareHostTools({
      zeta: { ...plain, readOnly: true },
      Alpha: {
        ...plain,
        inputSchema: { type: 'object', properties: { id: { type: 'string' } }, required: ['id'] },
      },
    })
    expect([...tools.keys()]).toEqual(['Alpha', 'zeta'])
    expect(tools.get('zeta')).toMatchObject({
      asks: false,
      offer: { readOnly: true, parameters: { type: 'object' } },
    })
    expect(tools.get('Alpha')).toMatchObject({ asks: true, offer: { readOnly: false } })
    expect(() => prepareHostTools({ it: { ...plain, inputSchema: z.string() } })).toThrow(
      'not that of an object',
    )
    let deep: z.ZodType = z.string()
    for (let level = 0; level < 10; level++) deep = z.object({ in: deep })
    expect(() => prepareHostTools({ it: { ...plain, inputSchema: deep } })).toThrow('nests deeper than 16')
    expect(() => prepareHostTools({ it: { ...plain, description: 'x'.repeat(20_000) } })).toThrow(
      'description',
    )
  })

  it('take only input that fits their schema, of zod as of JSON [S2.11]', () => {
    const tools = prepareHostTools({
      by_zod: plain,
      by_json: {
        ...plain,
        inputSchema: { type: 'object', properties: { id: { type: 'string' } }, required: ['id'] },
      },
    })
    expect(tools.get('by_zod')?.readInput({ id: 'a' })).toEqual({ ok: true, value: { id: 'a', count: 1 } })
    expect(tools.get('by_json')?.readInput({ id: 'a' })).toEqual({ ok: true, value: { id: 'a' } })
    for (const name of ['by_zod', 'by_json']) {
      const read = tools.get(name)?.readInput({ id: 7 })
      expect(read).toMatchObject({ ok: false, error: expect.stringContaining('id') })
    }
  })

  it('have functions typed by their schema [S4.05]', () => {
    const tool = defineHostTool({
      description: 'Adds.',
      inputSchema: z.object({ left: z.number(), right: z.number() }),
      execute: ({ left, right }) => left + right,
    })
    expect(prepareHostTools({ add_numbers: tool }).has('add_numbers')).toBe(true)
  })
})

describe('the tools that a run may use', () => {
  it('are said by true, false, a list, or a map that need not name all of them [S4.01]', () => {
    expect([undefined, true, {}, { read_file: true }].map(toolListOf)).toEqual([
      undefined,
      undefined,
      [],
      ['read_file'],
    ])
    expect(toolListOf(false)).toEqual([])
    expect(toolListOf(['read_*', '!read_output'])).toEqual(['read_*', '!read_output'])
    expect(toolListOf({ web_fetch: false, 'github_*': false })).toEqual(['!web_fetch', '!github_*'])
    expect(toolListOf({ web_fetch: false, read_file: true })).toEqual(['read_file'])
    expect(toolListOf({ web_fetch: false, '*': true })).toEqual(['!web_fetch'])
    expect(toolListOf({ '*': false })).toEqual([])
    expect(toolListOf({ '*': false, read_file: true, web_fetch: false })).toEqual(['read_file'])
  })
})

describe('a list of tools', () => {
  const further = { hostTools: ['look_up'], mcpServers: ['my.docs'], directory: '/nowhere' }

  it('may name what there can be: the agent’s tools, the application’s, and those of MCP servers', () => {
    const entries = ['run_*', 'look_up', 'my_docs_read', 'my_*', '*_read', '!web_*', '!nope_*', '!run_bash']
    expect(() => requirePossible(entries, further)).not.toThrow()
  })

  it('is refused for a name or pattern of no tool that there can be, with what there is', async () => {
    for (const entry of ['nope_*', 'list_flies', '!list_flies', 'docs_read', 'submit_plan', 'use_mcp_server'])
      expect(() => requirePossible([entry], further), entry).toThrow(
        /no tool is named .*list_files, .*look_up, .* and my_docs_\* of your MCP servers/,
      )
    expect(() => requirePossible(['shell_cmd'], further)).toThrow('the tool shell_cmd is called run_bash')
    // Which servers a workspace names is known in the VM alone.
    const directory = await temporaryFolder('workspace')
    await writeFile(path.join(directory, '.mcp.json'), '')
    expect(() => requirePossible(['docs_read'], { ...further, directory })).not.toThrow()
  })
})
