/**
 * The tool `governance_note`: adds a note to a proposal or lists its notes. The host stores them, and a person
 * decides which to keep.
 */
import * as z from 'zod'
import {
  GovernanceNoteInput,
  governanceNoteDescription,
  renderNotes,
} from '#specs/node/task-tools/governance-note.ts'
import { GovernanceNote, NoteAddAnswer, NoteListAnswer } from '#specs/protocol/extension.ts'
import type { GatewayClient } from '../tool-calls/gateway-client.ts'
import { defineTool, type Tool } from '../tool-calls/tool.ts'

const outputSchema = z.strictObject({ notes: z.array(GovernanceNote), added: z.boolean() })

export function createGovernanceTool(gateway: GatewayClient): Tool {
  return defineTool({
    name: 'governance_note',
    description: `${governanceNoteDescription} An added note is shown to the user, who keeps it or not.`,
    inputSchema: GovernanceNoteInput,
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
      return added && first !== undefined
        ? `Proposed as ${first.noteId} for ${first.proposalId}; it is not kept until the user has decided.`
        : renderNotes(notes)
    },
  })
}
