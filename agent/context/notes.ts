/** Formats memory notes for a model, each in its own block. */
import type { MemoryNote } from '#specs/protocol/extension.ts'
import { block, oneLine } from '../text/prompt-block.ts'

/** Formats the notes in their order. */
export function renderNotes(notes: readonly MemoryNote[]): string {
  return notes
    .map(({ noteId, text, tags, state }) => {
      const tagged = tags.length === 0 ? '' : ` tags=${JSON.stringify(tags.map(oneLine).join(', '))}`
      const proposed = state === 'kept' ? '' : ' state="proposed"'
      return block('note', text, ` id="${noteId}"${tagged}${proposed}`)
    })
    .join('\n')
}
