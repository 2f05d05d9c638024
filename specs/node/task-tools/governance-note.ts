/** The tool `governance_note`, in the VM and without one: its arguments, its result for the model. */
import * as z from 'zod'
import { type GovernanceNote, ProposalId } from '../../protocol/extension.ts'
import { Text } from '../../protocol/text.ts'
import { block, oneLine } from '../prompt-block.ts'

export const governanceNoteDescription = 'Adds a note to a proposal (PROP-…), or lists the notes that it has.'

export const GovernanceNoteInput = z
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

/** The notes of a proposal, each in a block. */
export function renderNotes(notes: readonly GovernanceNote[]): string {
  const [first] = notes
  if (first === undefined) return 'The proposal has no notes.'
  const lines = notes.map(({ noteId, text, author, state }) =>
    block(
      'note',
      text,
      ` id=${JSON.stringify(noteId)} by=${JSON.stringify(oneLine(author))} state=${JSON.stringify(state)}`,
    ),
  )
  return `[${notes.length} notes of ${first.proposalId}]\n${block('notes', lines.join('\n'))}`
}
