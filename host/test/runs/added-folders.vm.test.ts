// Folders besides the workspace in a real VM: who reads them, and that nothing changes there.
import { mkdir } from 'node:fs/promises'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { reply } from '#specs/testing/model-replies.ts'
import { type Asked, type ServerReply, startModelServer } from '#specs/testing/model-server.ts'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { testBench, writeFiles } from '../support/runs.ts'

const call = (name: string, input: unknown) => ({ name, arguments: input })
const bash = (command: string) => call('run_bash', { command })

/** Two folders with one base name, and a workspace that has a folder of the names on the disk. */
async function twoFolders() {
  const base = await temporaryFolder('added')
  const [one, two] = [path.join(base, 'one/data'), path.join(base, 'two/data')]
  for (const folder of [one, two]) await mkdir(folder, { recursive: true })
  await writeFiles(one, { 'a.txt': 'from one\n', 'sub/deep.txt': 'needle\n', '.env': 'KEY=1\n' })
  await writeFiles(two, { 'a.txt': 'from two\n' })
  return [{ path: one }, { path: two }]
}

describe('folders besides the workspace', () => {
  it('are read by tools, programs and sub-agents, and changed by none of them [W.08 S1.13]', async () => {
    const said: string[] = []
    const script = (asked: Asked): ServerReply => {
      const user = asked.messages.find(({ role }) => role === 'user')?.content ?? ''
      const isChild = user.includes('CHILD')
      if (!user.includes('<instructions>'))
        return reply({
          calls: [
            call('submit_plan', {
              goal: 'Read',
              steps: [{ id: 'lead', title: 'Lead', instructions: 'LEAD', needs: [], writes: ['*'] }],
            }),
          ],
        })
      if (asked.messages.at(-1)?.role !== 'tool') {
        said.push(user)
        return reply({
          calls: isChild
            ? [
                call('read_file', { path: '/mnt/folders/data-2/a.txt' }),
                bash('cat /mnt/folders/data/a.txt; echo x > /mnt/folders/data/a.txt; echo child > child.txt'),
              ]
            : [
                call('read_file', { path: '/mnt/folders/data/a.txt' }),
                call('list_files', { path: '/mnt/folders' }),
                call('search_files', { pattern: 'needle', path: '/mnt/folders' }),
                call('write_file', { path: '/mnt/folders/data/a.txt', content: 'x' }),
                bash('cp /mnt/folders/data-2/a.txt copied.txt; ls -A /mnt/folders/data folders'),
                bash('rm -rf /mnt/folders/data/sub /mnt/folders/data-2; touch /mnt/folders/new'),
                call('spawn_agent', { brief: 'CHILD', name: 'child' }),
              ],
        })
      }
      const since = asked.messages.findLastIndex(({ role }) => role === 'assistant')
      said.push(...asked.messages.slice(since).map(({ content }) => content ?? ''))
      return reply({ text: 'done' })
    }
    await using server = await startModelServer(script)
    const bench = await testBench(
      { 'own.txt': 'own\n', 'folders/of-workspace.txt': 'w\n', 'workspace/x.txt': 'x\n' },
      {
        CAISSON_LLM_URL: server.baseUrl,
        CAISSON_LLM_KEY: 'sk-some-key-of-the-test',
        CAISSON_MODEL: 'scripted',
      },
    )
    const folders = await twoFolders()
    const { state, events } = await bench.run('Read the folders', { folders })
    expect(state.end).toMatchObject({ outcome: 'completed' })
    expect(events.find(({ type }) => type === 'workspace-ready')).toMatchObject({
      files: 3,
      folders: [
        { name: 'data', files: 2, leftOut: 1, examples: [{ path: '.env', reason: 'secret' }] },
        { name: 'data-2', files: 1, leftOut: 0 },
      ],
    })
    const text = said.join('\n')
    // The context of the agent and of its sub-agent names them.
    expect(said.filter((one) => one.includes('/mnt/folders/data/\n/mnt/folders/data-2/'))).toHaveLength(2)
    expect(text).toMatch(/\/mnt\/folders\/data\/a\.txt: lines 1-1 of 1.*\nfrom one/)
    expect(text).toContain('/mnt/folders/data/sub/deep.txt (7 bytes)')
    expect(text).toContain('/mnt/folders/data/sub/deep.txt:1: needle')
    expect(text).toContain('is in a folder that is read-only')
    expect(text).toContain("cannot remove '/mnt/folders/data/sub/deep.txt': Read-only file system")
    expect(text).toContain("cannot touch '/mnt/folders/new': Read-only file system")
    expect(text).toContain('of-workspace.txt')
    // The sub-agent.
    expect(text).toMatch(/\/mnt\/folders\/data-2\/a\.txt: lines 1-1 of 1.*\nfrom two/)
    expect(text).toContain('/mnt/folders/data/a.txt: Read-only file system')

    const changes = events.find((event) => event.type === 'changes-ready')
    expect(changes?.paths?.map(({ path: changed }) => changed)).toEqual(['child.txt', 'copied.txt'])
  })

  it('belong to one run: the next in the same VM has its own, or none [W.08 V.04]', async () => {
    const bench = await testBench({ 'own.txt': 'own\n' })
    const [first, second] = await twoFolders()
    const ask = 'Run the command: ls -d /mnt/folders/*; cat /mnt/folders/*/a.txt own.txt'
    const answerOf = async (options: Parameters<typeof bench.run>[1]) => {
      const { run, state, events } = await bench.run(ask, options)
      const ended = events.find((event) => event.type === 'tool-end')
      const start = events.find((event) => event.type === 'vm-ready')
      return { id: run.id, text: `${ended?.output}${state.end?.summary}`, start: start?.start }
    }
    const one = await answerOf({ folders: [first ?? { path: '' }], vm: { keep: true } })
    expect(one.text).toContain('from one')
    const two = await answerOf({
      continue: one.id,
      folders: [{ ...second, path: second?.path ?? '', name: 'other' }],
    })
    expect(two).toMatchObject({ start: 'saved', text: expect.stringContaining('/mnt/folders/other') })
    expect(two.text).toContain('from two')
    expect(two.text).not.toContain('from one')
    const three = await answerOf({ continue: two.id, vm: { keep: false } })
    expect(three).toMatchObject({ start: 'saved', text: expect.stringContaining('own') })
    expect(three.text).not.toMatch(/from (one|two)/)
  })
})
