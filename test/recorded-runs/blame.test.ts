// Which call made the lines of runs that were recorded in real VMs.
import { createReadStream } from 'node:fs'
import path from 'node:path'
import { expect, it } from 'vitest'
import { hasCode } from '#specs/errors.ts'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { Host } from '../../host/host.ts'

/** The tools that made each line, one after the other; those of several candidates with a question mark. */
async function toolsOf(name: string): Promise<Record<string, string>> {
  const home = await temporaryFolder('home')
  const workspace = await temporaryFolder('workspace')
  await using host = new Host({
    env: { HOME: home, CAISSON_HOME: path.join(home, 'state'), XDG_CONFIG_HOME: home },
  })
  const archive = createReadStream(path.join(import.meta.dirname, 'fixtures', `${name}.caisson`))
  const { runId } = await host.importRun(archive, { workspace })
  const found: Record<string, string> = {}
  for (const item of await (await host.changes(runId)).review()) {
    const blame = await host.blame(runId, item.path).catch((error: unknown) => {
      // Directories and links have no lines.
      if (hasCode(error, 'not_possible_now')) return undefined
      throw error
    })
    if (blame === undefined) continue
    const { lines, deletion, calls } = blame
    const origins = deletion === undefined ? lines.map(({ origin }) => origin) : [deletion]
    const tools = origins.map((origin) => {
      if (origin.kind === 'workspace') return 'workspace'
      if (origin.kind === 'call') return `${calls[origin.call]?.agentPath} ${calls[origin.call]?.tool}`
      const [first = -1] = origin.calls
      return `${calls[first]?.tool}?`
    })
    found[item.path] = [...new Set(tools)].join(', ')
    // Behind each call is what led to it.
    for (const call of calls) expect(call).toMatchObject({ turn: { turn: expect.any(Number) } })
  }
  return found
}

it('the lines of recorded runs name their calls, of edits, commands, deletions and sub-agents [W.09]', async () => {
  expect(await toolsOf('files-and-commands')).toEqual({
    'bin/count.sh': 'root write_file',
    'docs/notes.md': 'workspace, root edit_file',
    'sorted.csv': 'run_bash?',
  })
  expect(await toolsOf('agents-and-revision')).toEqual({
    'parts.csv': 'workspace, root/pen edit_file',
    'report.md': 'root/pen write_file',
  })
  expect(await toolsOf('questions-and-approvals')).toEqual({
    'old.txt': 'root delete_file',
    'title.md': 'run_bash?',
  })
})
