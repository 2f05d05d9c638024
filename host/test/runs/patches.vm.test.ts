// Patches and reads in the VM's own file system, an overlay whose files belong to another user: what a scripted model asks for.
import { calls, createScriptedModel, text } from 'caisson/testing'
import { expect, it } from 'vitest'
import { Host } from '../../host.ts'
import { readFiles, testBench } from '../support/runs.ts'

const plan = {
  goal: 'A change',
  steps: [{ id: 'change', title: 'Change', instructions: 'Change it', needs: [], writes: ['*'] }],
}
const wrong = `*** Begin Patch
*** Update File: a.txt
@@
-one
+eins
*** Update File: b.txt
@@
-three
+drei
*** End Patch
`
const right = `diff --git a/a.txt b/a.txt
--- a/a.txt
+++ b/a.txt
@@ -1,9 +1,9 @@
-one
+eins
diff --git a/b.txt b/new/b.txt
similarity index 50%
rename from b.txt
rename to new/b.txt
--- a/b.txt
+++ b/new/b.txt
@@ -1 +1 @@
-two
+zwei
diff --git a/run.sh b/run.sh
new file mode 100755
--- /dev/null
+++ b/run.sh
@@ -0,0 +1 @@
+true
`
const gone = '--- a/gone.txt\n+++ /dev/null\n@@ -1 +0,0 @@\n-gone\n'

it('applies a patch whole or not at all, asks for what deletes, and overwrites nothing unseen [A.06 S1.11 W.01]', async () => {
  const turns = [
    { name: 'apply_patch', arguments: { patch: wrong } },
    { name: 'apply_patch', arguments: { patch: right } },
    { name: 'apply_patch', arguments: { patch: gone } },
    { name: 'read_file', arguments: { path: 'kept.txt' } },
    {
      name: 'run_bash',
      arguments: { command: 'cat a.txt new/b.txt; test -x run.sh && echo theirs > kept.txt' },
    },
    { name: 'write_file', arguments: { path: 'kept.txt', content: 'mine\n' } },
  ]
  await using model = createScriptedModel({
    rules: [
      { when: { step: 'plan' }, reply: calls({ name: 'submit_plan', arguments: plan }), times: 1 },
      ...turns.map((call, turn) => ({ when: { step: 'change', turn }, reply: calls(call), times: 1 })),
      { when: { step: 'change' }, reply: text('Done.'), times: 1 },
    ],
  })
  const providers = { scripted: { url: await model.listen(), models: ['scripted'] } }
  const bench = await testBench({
    'a.txt': 'one\n',
    'b.txt': 'two\n',
    'gone.txt': 'gone\n',
    'kept.txt': 'kept\n',
  })
  const host = new Host({
    env: { ...process.env, CAISSON_HOME: bench.home },
    config: { model: 'scripted', providers },
  })
  const rules = [{ effect: 'allow' as const, tool: 'apply_patch', pattern: 'gone.txt', argument: 'path' }]
  const run = await host.run({
    prompt: 'Change it',
    workspace: bench.workspace,
    approvals: { interactive: false, rules },
  })
  const { end } = await run.ended
  expect(end).toMatchObject({ outcome: 'completed' })
  const results = model.requests.slice(2).map(({ lastResult }) => lastResult ?? '')
  expect(results).toMatchObject([
    expect.stringContaining('hunk 1 of "b.txt"'),
    expect.stringContaining('Updated b.txt, now new/b.txt'),
    expect.stringContaining('Deleted gone.txt'),
    expect.stringContaining('kept'),
    expect.stringContaining('eins\nzwei'),
    expect.stringContaining('stale'),
  ])
  const changes = await host.changes(run.id)
  await changes.apply('all')
  expect(await readFiles(bench.workspace)).toEqual({
    'a.txt': 'eins\n',
    'new/b.txt': 'zwei\n',
    'run.sh': 'true\n',
    'kept.txt': 'theirs\n',
  })
}, 300_000)
