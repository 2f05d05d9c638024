/** `read_output`: returns an earlier call's complete output in pages. Reads only the run's own outputs. */
import * as z from 'zod'
import { block } from '#specs/node/prompt-block.ts'
import { Count, Id } from '#specs/protocol/text.ts'
import { defineTool, type Tool, toolFailure, toolSuccess } from '../tool-calls/tool.ts'

export const readOutputName = 'read_output'

const defaultChars = 16_000
const maxChars = 48_000

const inputSchema = z.strictObject({
  callId: Id.describe('The id that the note in the cut result names'),
  offset: z.int().min(0).optional().describe('Character to begin at, from 0; default 0'),
  limit: z.int().min(1).max(maxChars).optional().describe(`Characters, default ${defaultChars}`),
})

const outputSchema = z.strictObject({
  text: z.string(),
  offset: Count,
  totalChars: Count,
  lostBytes: Count,
})

export function createOutputTool(): Tool {
  return defineTool({
    name: readOutputName,
    description: `Reads the whole output of an earlier call that was cut in its middle, in pages of up to ${maxChars} characters. The note where the result was cut names the id. Prefer a call that gives less, such as a search, where there is one.`,
    inputSchema,
    outputSchema,
    requiresApproval: false,
    readOnly: true,
    inPrograms: false,
    execute: ({ callId, offset = 0, limit = defaultChars }, { outputs }) => {
      if (outputs === undefined)
        return Promise.resolve(toolFailure('unavailable', 'no outputs are kept here'))
      const page = outputs.read(callId, offset, limit)
      return Promise.resolve(page.ok ? toolSuccess({ ...page.value }) : page)
    },
    render: ({ text, offset, totalChars, lostBytes }) => {
      const end = offset + text.length
      const facts = [`characters ${Math.min(offset, totalChars)} to ${end} of ${totalChars}`]
      if (end < totalChars) facts.push(`read on with offset ${end}`)
      if (lostBytes > 0) facts.push(`${lostBytes} bytes of its middle were never kept`)
      // A part of a page or a file may lack the marks around the whole.
      return `[${facts.join('; ')}]\n${block('output', text)}`
    },
  })
}
