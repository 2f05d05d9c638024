/**
 * The tool `governance_note`: adds a note to a proposal or lists its notes. The host stores them, and a person
 * decides which to keep.
 */
import * as z from 'zod'
import { GovernanceNote, NoteAddAnswer, NoteListAnswer, ProposalId } from '#specs/protocol/extension.ts'
import { Text } from '#specs/protocol/text.ts'
import { block, oneLine } from '../text/prompt-block.ts'
import type { GatewayClient } from '../tool-calls/gateway-client.ts'
import { defineTool, type Tool } from '../tool-calls/tool.ts'

const inputSchema = z
  .strictObject({
    action: z.enum(['add', 'list']),
    proposalId: ProposalId.describe('The proposal, such as PROP-12'),
    text: Text.min(1).optional().describe('Of add: the note'),
  })
  .superRefine(({ action, text }, context) => {
    if (action === 'add' && text === undefined)
      context.addIssue({ code: 'custom', path: ['text'], message: 'add needs the text of the note' })
    if (action === 'list' && text !== undefined)
      context.addIssue({ code: 'custom', path: ['text'], message: 'list takes no text' })
  })
const outputSchema = z.strictObject({ notes: z.array(GovernanceNote), added: z.boolean() })

export function createGovernanceTool(gateway: GatewayClient): Tool {
  return defineTool({
    name: 'governance_note',
    description:
      'Adds a note to a proposal (PROP-…), or lists the notes that it has. An added note is shown to the user, who keeps it or not.',
    inputSchema,
    outputSchema,
    requiresApproval: false,
    readOnly: false,
    // Changes nothing in the VM.
    mayPlan: true,
    concurrent: true,
    destructive: false,
    async execute({ action, proposalId, text }, { agentPath = 'root', signal }) {
      if (action === 'add') {
        const answer = await gateway.post(
          '/notes/add',
          { proposalId, text, agentPath },
          NoteAddAnswer,
          signal,
        )
        return answer.ok ? { ok: true, value: { notes: [answer.value.note], added: true } } : answer
      }
      const answer = await gateway.post('/notes/list', { proposalId }, NoteListAnswer, signal)
      return answer.ok ? { ok: true, value: { notes: answer.value.notes, added: false } } : answer
    },
    render({ notes, added }) {
      const [first] = notes
      if (first === undefined) return 'The proposal has no notes.'
      if (added)
        return `Proposed as ${first.noteId} for ${first.proposalId}; whether it is kept is for the user to decide.`
      const lines = notes.map(({ noteId, text, author, state }) =>
        block(
          'note',
          text,
          ` id=${JSON.stringify(noteId)} by=${JSON.stringify(oneLine(author))} state=${JSON.stringify(state)}`,
        ),
      )
      return `[${notes.length} notes of ${first.proposalId}]\n${block('notes', lines.join('\n'))}`
    },
  })
}
