/** Reads the user's skills and the notes of the workspace at the start of a run. */
import { CaissonError } from '#specs/errors.ts'
import type { Task } from '#specs/protocol/task.ts'
import type { Config } from '../config/schema.ts'
import { notesForTask } from '../memory/memory-service.ts'
import type { NoteStore } from '../memory/note-store.ts'
import type { UserSkills } from '../skills/user-skills.ts'
import type { ResolvedRun } from './resolved-run.ts'

/** Problems with skills and notes are reported to `say` and never stop a run. */
export async function readTaskContext(
  { memory }: Pick<Config, 'memory'>,
  skills: UserSkills,
  notes: NoteStore,
  directory: string,
  say: (text: string) => void = () => undefined,
): Promise<Pick<ResolvedRun, 'memory' | 'skills'>> {
  if (skills.problems.length > 0)
    say(`problems with skills: ${skills.problems.length}; to see them: caisson skills list`)
  if (!memory.enabled) return { skills }
  try {
    const damaged = notes.damaged().length
    if (damaged > 0) say(`unreadable notes: ${damaged}; to see them: caisson memory list`)
    return { skills, memory: { store: notes, notes: notesForTask(notes, directory) } }
  } catch (error) {
    if (!(error instanceof CaissonError)) throw error
    say(`this run has no memory: ${error.message}`)
    return { skills }
  }
}

/** The part that is sent with the task. */
export function knowledgeOf({ skills, memory }: ResolvedRun): Pick<Task, 'skills' | 'memory'> {
  const heads = skills?.heads() ?? []
  return {
    ...(heads.length === 0 ? {} : { skills: heads }),
    ...(memory === undefined ? {} : { memory: [...memory.notes] }),
  }
}
