/**
 * The tools `remember` and `recall`: notes on the workspace that outlive the run. The host stores them, and a person
 * decides which to keep.
 */
import * as z from 'zod'
import { block } from '#specs/node/prompt-block.ts'
import {
  MemoryNote,
  NoteId,
  RecallAnswer,
  RecallRequest,
  RememberAnswer,
  RememberRequest,
} from '#specs/protocol/extension.ts'
import { Count, Line } from '#specs/protocol/text.ts'
import { renderNotes } from '../context/sections.ts'
import type { GatewayClient } from '../tool-calls/gateway-client.ts'
import { defineTool, type Tool } from '../tool-calls/tool.ts'

const rememberInput = z.strictObject({
  text: RememberRequest.shape.text.describe(
    'What is worth knowing in a later run, in a few sentences that stand alone',
  ),
  tags: z.array(Line.min(1)).max(16).default([]).describe('A few words by which it is found again'),
  replaces: NoteId.optional().describe('The id of a note that this one is to stand in the place of'),
})
const rememberOutput = z.strictObject({ note: MemoryNote })

const recallInput = z.strictObject({
  query: Line.optional().describe('Words to look for; absent: the newest notes'),
  limit: RecallRequest.shape.limit.describe('Notes to return at most'),
})
const recallOutput = z.strictObject({ notes: z.array(MemoryNote), total: Count })

export function createMemoryTools(gateway: GatewayClient): Tool[] {
  return [
    defineTool({
      name: 'remember',
      description:
        'Proposes a note on this workspace for later runs: how it is built, a decision, what did not work. It is shown to the user, who keeps it or not. For what the user asks to be remembered, and for what was hard to find out; never for secrets, for the progress of this task, or for what the files say anyway.',
      inputSchema: rememberInput,
      outputSchema: rememberOutput,
      requiresApproval: false,
      readOnly: false,
      // Changes nothing in the VM.
      mayPlan: true,
      concurrent: true,
      destructive: false,
      execute: (input, { agentPath = 'root', signal }) =>
        gateway.post('/memory/remember', { ...input, agentPath }, RememberAnswer, signal),
      render: ({ note }) =>
        note.state === 'kept'
          ? `It is kept already, as ${note.noteId}.`
          : `Proposed as ${note.noteId}; whether it is kept is for the user to decide.`,
    }),
    defineTool({
      name: 'recall',
      description:
        'Gives notes on this workspace: those kept from earlier runs, and those proposed in this one. They were true once; look before you rely on them.',
      inputSchema: recallInput,
      outputSchema: recallOutput,
      requiresApproval: false,
      readOnly: true,
      execute: (input, { signal }) => gateway.post('/memory/recall', input, RecallAnswer, signal),
      render: ({ notes, total }) => {
        if (notes.length === 0) return 'There are no such notes.'
        return `[${notes.length} of ${total} notes]\n${block('memory', renderNotes(notes))}`
      },
    }),
  ]
}

/** Offered when the run has a memory. */
export const memoryToolNames: readonly string[] = ['remember', 'recall', 'governance_note']
