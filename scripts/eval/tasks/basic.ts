/** Plain orders on files, the least that a model has to do. The offline model does them, too. */
import { type EvalTask, filesAre } from '../task.ts'

const terms = 'Acme sells tools.\nWrite to Acme, not to Acmex.\n'
const ours = 'name one\ncount 1\n'

export const basicTasks: readonly EvalTask[] = [
  {
    name: 'basic-replace',
    tags: ['basic', 'text'],
    difficulty: 'easy',
    prompt: 'Replace "Acme sells" with "Zeta sells" in terms.txt.',
    files: { 'terms.txt': terms },
    check: filesAre({ 'terms.txt': terms.replace('Acme sells', 'Zeta sells') }),
    solution: { 'terms.txt': terms.replace('Acme sells', 'Zeta sells') },
  },
  {
    name: 'basic-rename',
    tags: ['basic', 'text'],
    difficulty: 'easy',
    prompt: 'Rename draft.txt to final.txt. Then append the line "Done." to final.txt.',
    files: { 'draft.txt': 'A text.\n', 'other.txt': 'Another one.\n' },
    check: filesAre({
      ...{ 'draft.txt': null, 'final.txt': 'A text.\nDone.\n', 'other.txt': 'Another one.\n' },
    }),
    solution: { 'draft.txt': null, 'final.txt': 'A text.\nDone.\n' },
  },
  {
    name: 'basic-copy',
    tags: ['basic', 'config'],
    difficulty: 'easy',
    prompt: 'Copy ours.conf to theirs.conf, then replace "name one" with "name two" in theirs.conf.',
    files: { 'ours.conf': ours },
    check: filesAre({ 'ours.conf': ours, 'theirs.conf': ours.replace('one', 'two') }),
    solution: { 'theirs.conf': ours.replace('one', 'two') },
  },
]
