/** Histories and merges. Answers are files of the workspace: nothing reads the repository of a result. */
import { type EvalTask, filesAre, pythonTest } from '../task.ts'

/** Commits get the same ids on each machine. */
const begin = `export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1
export GIT_AUTHOR_NAME=Ada GIT_AUTHOR_EMAIL=ada@a.test GIT_COMMITTER_NAME=Ada GIT_COMMITTER_EMAIL=ada@a.test
export GIT_AUTHOR_DATE='2026-01-01T00:00:00Z' GIT_COMMITTER_DATE='2026-01-01T00:00:00Z'
git init -q -b main`

const rate = (factor: string) => `def rate(days):\n    return days * ${factor}\n`
const bothSides = `def price(count):
<<<<<<< HEAD
    if count < 0:
        raise ValueError('count')
    return count * 3
=======
    return count * 4  # the new price
>>>>>>> prices
`

export const gitTasks: readonly EvalTask[] = [
  {
    name: 'git-regression',
    tags: ['git', 'python'],
    difficulty: 'medium',
    prompt:
      'rate(10) of rate.py was 20 at first and is not any more. Write into culprit.txt the subject of the commit that changed the result, alone. Leave rate.py as it is.',
    files: { 'rate.py': rate('2') },
    setup: `${begin}
for number in 1 2 3 4 5 6 7 8 9 10 11 12; do
  echo "note $number" >>notes.txt
  if [ $number = 5 ]; then printf 'def rate(days):\\n    return days * (1 + 1)\\n' >rate.py; fi
  if [ $number = 8 ]; then printf 'def rate(days):\\n    return days * (1 + 1) + days // 9\\n' >rate.py; fi
  if [ $number = 10 ]; then printf 'def rate(days):\\n    return days * 2 + days // 9\\n' >rate.py; fi
  git add . && git commit -q -m "Change $number"
done`,
    check: filesAre({ 'culprit.txt': 'Change 8' }),
    solution: { 'culprit.txt': 'Change 8\n' },
  },
  {
    name: 'git-deleted-file',
    tags: ['git'],
    difficulty: 'easy',
    prompt:
      'An earlier commit deleted limits.txt. Restore the file as it was just before, without changing other files.',
    files: { 'readme.txt': 'A project.\n' },
    setup: `${begin}
echo 'max 10' >limits.txt && git add . && git commit -q -m One
echo 'max 25' >limits.txt && git commit -q -a -m Two
git rm -q limits.txt && git commit -q -m Three
echo more >>readme.txt && git commit -q -a -m Four`,
    check: filesAre({ 'limits.txt': 'max 25', 'readme.txt': 'A project.\nmore\n' }),
    solution: { 'limits.txt': 'max 25\n' },
  },
  {
    name: 'git-conflict',
    tags: ['git', 'python'],
    difficulty: 'medium',
    prompt:
      'price.py has a conflict of a merge. Resolve it so that both changes are in: the check of the count and the new price.',
    files: { 'price.py': bothSides },
    check: pythonTest(`
from price import price
assert price(2) == 8 and price(0) == 0
try:
    price(-1)
except ValueError:
    pass
else:
    raise AssertionError('no error')`),
    solution: {
      'price.py': `def price(count):
    if count < 0:
        raise ValueError('count')
    return count * 4  # the new price
`,
    },
  },
  {
    name: 'git-authors',
    tags: ['git', 'data'],
    difficulty: 'easy',
    prompt:
      'Write authors.txt: for each author of a commit on main a line "NAME COUNT", most commits first. Merges count too.',
    files: { 'a.txt': 'a\n' },
    setup: `${begin}
git add . && git commit -q -m 0
for name in Bob Cy Bob Ada Bob Cy Bob Ada Ada Ada Ada; do
  GIT_AUTHOR_NAME=$name git commit -q --allow-empty -m "by $name"
done
git checkout -q -b other && GIT_AUTHOR_NAME=Dan git commit -q --allow-empty -m side && git checkout -q main`,
    check: filesAre({ 'authors.txt': 'Ada 6\nBob 4\nCy 2\n' }),
    solution: { 'authors.txt': 'Ada 6\nBob 4\nCy 2\n' },
  },
  {
    name: 'git-patch',
    tags: ['git'],
    difficulty: 'medium',
    prompt:
      'change.patch was made for an older list.txt and does not apply any more. Make the change that it describes in list.txt as it is now.',
    files: {
      'list.txt': 'intro\n\nalpha\nbeta two\ngamma\ndelta\n',
      'change.patch':
        '--- a/list.txt\n+++ b/list.txt\n@@ -1,4 +1,4 @@\n alpha\n beta\n-gamma\n+gamma ray\n delta\n+epsilon\n',
    },
    check: filesAre({ 'list.txt': 'intro\n\nalpha\nbeta two\ngamma ray\ndelta\nepsilon\n' }),
    solution: { 'list.txt': 'intro\n\nalpha\nbeta two\ngamma ray\ndelta\nepsilon\n' },
  },
]
