// Calls by names of other systems, through the real registry and the real schemas of our tools.
import { execFileSync } from 'node:child_process'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import * as z from 'zod'
import { isReservedToolName, toolAliases } from '#specs/protocol/tool-names.ts'
import { aliasedTool, translateArguments } from '../../tool-calls/aliases.ts'
import { createRegistry } from '../../tool-calls/registry.ts'
import { defineTool, toolSuccess } from '../../tool-calls/tool.ts'
import { createAskTool } from '../../tools/ask-user.ts'
import { createFileTools } from '../../tools/file-tools.ts'
import { silentLogger } from '../support/run.ts'
import { callAsModel, runInFolder } from '../support/tools.ts'

const bash = defineTool({
  name: 'run_bash',
  description: 'Runs.',
  inputSchema: z.strictObject({ command: z.string(), timeoutMs: z.int().optional() }),
  outputSchema: z.unknown(),
  requiresApproval: false,
  readOnly: false,
  execute: (input) => Promise.resolve(toolSuccess(input)),
})
const search = createFileTools(runInFolder('/')).filter(({ name }) => name === 'search_files')
const registry = createRegistry([bash, createAskTool(), ...search], { logger: silentLogger })

const call = (name: string, args: unknown) =>
  callAsModel(registry, name, args, {
    askUser: (question) => Promise.resolve(toolSuccess({ answer: JSON.stringify(question) })),
  })

describe('names of other systems', () => {
  it('mean our tools, and the correction is recorded [S2.09, S2.17]', async () => {
    const ran = await call('shell_cmd', { command: 'ls', parameters: ['-l', "it's $HOME"], timeout: 500 })
    expect(ran).toMatchObject({ tool: 'run_bash', corrections: ['shell_cmd: taken as run_bash'] })
    expect(JSON.parse(ran.arguments)).toEqual({ command: "ls -l 'it'\\''s $HOME'", timeoutMs: 500 })
    const asked = await call('human_intervention_request', {
      question: 'Which?',
      options: ['a', 'b'],
      defaultOption: 'a',
    })
    expect(asked).toMatchObject({
      tool: 'ask_user',
      corrections: ['human_intervention_request: taken as ask_user'],
    })
    expect(JSON.parse(asked.arguments)).toMatchObject({ kind: 'choice', defaultAnswer: 'a' })
    const searched = JSON.parse(
      (await call('grep', { query: 'x', isRegexp: true, directoryPath: 'src' })).arguments,
    )
    expect(searched).toMatchObject({ pattern: 'x', regex: true, path: 'src' })
    expect(registry.isConcurrent('grep')).toBe(true)
  })

  it('run nothing where the arguments do not say one thing: the model learns the name to use [S2.09, S2.18]', async () => {
    for (const args of [
      { command: 'ls -l; rm -rf x' },
      { command: 'ls', args: 'x' },
      { command: 'ls', directory: 'src' },
      { command: 'ls', parameters: ['a'], args: ['b'] },
      { command: 'ls', shell: true },
      [],
    ]) {
      const refused = await call('shell_cmd', args)
      expect(refused.error?.code).toBe('invalid_input')
      expect(refused.output).toContain('run_bash')
    }
    expect((await call('grep', { query: 'x', pattern: 'y' })).error?.code).toBe('invalid_input')
  })

  it('are reserved, in every spelling, together with the names of our own tools [S2.09]', () => {
    for (const name of [
      'shell_cmd',
      'Shell-Cmd',
      'read_file',
      'web-fetch',
      'load_skill',
      'grep',
      'write_file',
      'list_files',
      'Wait-Until',
    ])
      expect(isReservedToolName(name)).toBe(true)
    expect(isReservedToolName('deploy')).toBe(false)
    expect(Object.values(toolAliases).every(isReservedToolName)).toBe(true)
    expect(aliasedTool('constructor')).toBeUndefined()
  })

  it('give a program exactly the words that were meant, whatever is in them [S2.09]', () => {
    fc.assert(
      fc.property(
        fc.array(
          fc.string({ unit: 'grapheme' }).filter((word) => !word.includes('\0')),
          { maxLength: 4 },
        ),
        (words) => {
          const made = translateArguments(
            'shell_cmd',
            JSON.stringify({ command: 'printf', args: ['%s\\0', ...words] }),
          )
          const { command } = JSON.parse(made.ok ? made.value : '{}') as { command: string }
          const printed = execFileSync('/bin/bash', ['-c', command]).toString()
          expect(printed.split('\0').slice(0, -1)).toEqual(
            words.length === 0 ? [''] : words.map((word) => word.toWellFormed()),
          )
        },
      ),
      { numRuns: 40, seed: 7 },
    )
  })
})
