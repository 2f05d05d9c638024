/** `scripts/run`: the command line's `run`, with the example as its task when none is given. */
import { enableCompileCache } from 'node:module'
import path from 'node:path'

enableCompileCache()
const { runCli } = await import('../host/cli/main.ts')
const { exampleTask } = await import('../examples/task.ts')
const workspace = path.join(import.meta.dirname, '../examples', exampleTask.directory)
process.exitCode = await runCli(['run', ...process.argv.slice(2)], undefined, {
  task: exampleTask.prompt,
  workspace,
})
