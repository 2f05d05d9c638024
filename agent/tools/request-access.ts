/**
 * The tool `request_access`: requests network access. The host words the question, decides by rule or person, and
 * opens the access; the tool only transports the request, as an approval, and the answer.
 */
import * as z from 'zod'
import { AccessRequest } from '#specs/protocol/egress.ts'
import { defineTool, type Tool, toolSuccess } from '../tool-calls/tool.ts'

const inputSchema = z.strictObject({
  url: AccessRequest.shape.url.describe(
    'The address that is needed, whole: https://api.example.com/v1/rates',
  ),
  reason: AccessRequest.shape.reason.describe('What it is needed for, in one or two sentences for a person'),
})

/** The name that the host recognizes. */
export const accessTool = 'request_access'

export function createAccessTool(): Tool {
  return defineTool({
    name: accessTool,
    description:
      'Asks for access to an address on the network. Use it only when web_fetch or a command was refused by the egress policy and the task needs that address. The host says exactly what it would allow and asks a person; the result says what is allowed now. Then try again what was refused.',
    inputSchema,
    outputSchema: z.string(),
    // The host recognizes the name and asks its own question.
    requiresApproval: true,
    readOnly: false,
    // It asks; a person who sees the host's wording decides what it may lead to.
    destructive: false,
    execute: (_input, { allowed }) =>
      Promise.resolve(toolSuccess(allowed ?? 'allowed; try again what was refused')),
    render: (text) => text,
  })
}
