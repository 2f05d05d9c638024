import { writeFile } from 'node:fs/promises'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { cliPlace, runArguments } from '../support/cli.ts'
import { readFiles } from '../support/runs.ts'

/** Anything that acts on a terminal, but line feeds. */
const acting = /(?!\n)[\p{Cc}\p{Bidi_Control}]/u

describe('caisson run without a terminal', () => {
  it('denies what asks and names the flag that would allow it [S1.11 H.01]', async () => {
    const place = await cliPlace({ 'old.txt': 'old\n' })
    const { code, stdout } = await place.run(...runArguments(place, 'Delete old.txt'))
    expect(stdout).toMatch(/\? asks to call delete_file .*old\.txt/)
    expect(stdout).toMatch(/Denied .*--approve all/)
    expect(stdout).not.toMatch(acting)
    expect(code).toBe(3)
  })

  it('takes the task from standard input and gives the final answer alone, on standard output and in a file [H.01]', async () => {
    const place = await cliPlace({ 'a.txt': 'one two three\n' })
    const started = place.start(...runArguments(place, '-', '--quiet', '-o', 'answer.txt', '--no-apply'))
    started.child.stdin?.end('Count the words of a.txt')
    const { code, stdout } = await started.ended
    expect(code).toBe(0)
    expect(stdout).toContain('3')
    expect(stdout).not.toMatch(/Run |journal head|changed/)
    expect((await readFiles(place.workspace))['answer.txt']).toBe(stdout)
    const denied = await place.run(...runArguments(place, 'Delete a.txt', '-q', '-o', 'answer.txt'))
    expect(denied).toMatchObject({ code: 3, stdout: '', stderr: expect.stringContaining('denied') })
    expect((await readFiles(place.workspace))['answer.txt']).toBe(stdout)
  })

  it('names the tools there are when one is asked for that is not, and says why a log is empty [H.01]', async () => {
    // With servers of the workspace's own, it is the agent who knows the names.
    const place = await cliPlace({ '.mcp.json': '{ "mcpServers": {} }' })
    const { code, stdout } = await place.run(...runArguments(place, 'List the files', '--tool', 'list_flies'))
    expect(code).toBe(4)
    expect(stdout).toMatch(
      /environment: there is no tool "list_flies"; the tools are apply_patch, .*list_files/,
    )
    const [runId = ''] = /run-[0-9a-f]{20}/.exec(stdout) ?? []
    await writeFile(path.join(place.home, 'runs', runId, 'console.txt'), '')
    const logs = await place.run('vm', 'logs', 'last')
    expect(logs).toMatchObject({
      code: 0,
      stdout: '',
      stderr: expect.stringContaining('the console is empty'),
    })
  })

  it('applies nothing by itself; later processes show, apply by path, and undo, odd names included [W.01 W.02 H.01]', async () => {
    const place = await cliPlace({})
    const names = [
      `printf x > "$(printf '\\033[31mred')"`,
      `printf x > "$(printf 'two\\nlines')"`,
      `printf x > "$(printf 'evil\\342\\200\\256txt.exe')"`,
      'for i in $(seq 300); do echo $i > $i.txt; done',
    ]
    const { code, stdout } = await place.run(
      ...runArguments(place, `Run the command \`${names.join('; ')}\``),
    )
    expect(code).toBe(5)
    expect(stdout).toContain('Nothing was applied.')
    expect(stdout).toContain('303 changes')
    expect(stdout).not.toMatch(acting)
    expect(await readFiles(place.workspace)).toEqual({})

    const diff = await place.run('workspace', 'diff', 'last')
    for (const shown of ['\\e[31mred', 'two\\nlines', 'evil\\u{202e}txt.exe', '300.txt'])
      expect(diff.stdout).toContain(shown)
    expect(diff.stdout).not.toMatch(acting)
    expect(diff.code).toBe(0)
    const unknown = await place.run('workspace', 'apply', 'last', '7.txt', 'two\nlines', 'missing')
    expect(unknown).toMatchObject({ code: 2, stdout: '', stderr: expect.stringContaining('"missing"') })
    expect(await readFiles(place.workspace)).toEqual({})
    const some = await place.run('workspace', 'apply', 'last', '7.txt', 'two\nlines')
    expect(some).toMatchObject({ code: 0, stdout: expect.stringContaining('Applied 2 changes.') })
    expect(await readFiles(place.workspace)).toEqual({ '7.txt': '7\n', 'two\nlines': 'x' })
    expect((await place.run('workspace', 'apply', 'last', '--all')).code).toBe(0)
    expect(Object.keys(await readFiles(place.workspace))).toHaveLength(303)

    const shown = await place.run('runs', 'show', 'last')
    expect(shown.stdout).toContain('journal intact')
    expect(shown.stdout).not.toMatch(acting)
    expect((await place.run('runs', 'list')).stdout).toMatch(/completed .* 303 changes/)
    expect(await place.run('workspace', 'undo', 'last')).toMatchObject({ code: 0 })
    expect(await readFiles(place.workspace)).toEqual({})
    expect(await place.run('runs', 'rm', 'last')).toMatchObject({ code: 0 })
    expect((await place.run('runs', 'list')).stdout).toContain('no runs yet')
  })

  it('applies with --apply all but what is flagged, says so, and exits with 5 [W.01 W.03]', async () => {
    const place = await cliPlace({})
    const command = 'mkdir -p .github/workflows && echo x > .github/workflows/ci.yml && echo y > ok.txt'
    const { code, stdout } = await place.run(
      ...runArguments(place, `Run the command \`${command}\``, '--apply'),
    )
    expect(stdout).toMatch(/left out: \.github\/workflows\/ci\.yml: flagged/)
    expect(code).toBe(5)
    expect(await readFiles(place.workspace)).toEqual({ 'ok.txt': 'y\n' })
  })

  it('answers by a file of rules, and everything with --approve all [S1.11]', async () => {
    const place = await cliPlace({ 'old.txt': 'old\n' })
    const rules = path.join(await temporaryFolder('rules'), 'rules.json')
    const deny = { effect: 'deny', tool: 'run_bash', pattern: '*old*', reason: 'old things stay' }
    await writeFile(rules, JSON.stringify({ rules: [deny] }))
    const task = 'Run the command `rm old.txt`'
    const ruled = await place.run(...runArguments(place, task, '--approve', rules, '--apply'))
    expect(ruled.stdout).toMatch(/Denied by a rule: deny run_bash/)
    expect(ruled.code).toBe(3)
    expect(await readFiles(place.workspace)).toEqual({ 'old.txt': 'old\n' })
    const all = await place.run(...runArguments(place, 'Delete old.txt', '--approve', 'all', '--apply'))
    expect(all.code).toBe(0)
    expect(await readFiles(place.workspace)).toEqual({})
  })
})
