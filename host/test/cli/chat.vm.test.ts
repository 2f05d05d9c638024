// A conversation in a pseudo-terminal with real VMs and the offline model.
import { readFile, stat } from 'node:fs/promises'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { Host } from '../../host.ts'
import { cliPlace } from '../support/cli.ts'
import { readFiles } from '../support/runs.ts'

describe('a conversation', () => {
  it('does three tasks one after another in one VM, cancels one and keeps its VM, and says how to come back [S1.11 H.01]', async () => {
    const place = await cliPlace({ 'a.txt': 'a\n' })
    const cli = place.startInTerminal('chat', '--', '--ram', '512M')
    await cli.sees('caisson>')
    cli.type("Create b.txt with the content 'b'\r")
    await cli.sees('Type 1')
    // The first choice applies; keys count a second after the question appeared.
    await new Promise((resolve) => setTimeout(resolve, 1_500))
    cli.type('1\r')
    await cli.sees('caisson>')
    expect(await readFiles(place.workspace)).toMatchObject({ 'b.txt': expect.stringContaining('b') })
    cli.type('/undo\r')
    await cli.sees(/Restored 1 path[\s\S]*caisson>/)
    cli.type('Run the command `sleep 300`\r')
    await cli.sees('run_bash')
    cli.type('\u0003')
    await cli.sees(/Cancelling[\s\S]*journal head[\s\S]*caisson>/)
    cli.type('Count the words of a.txt\r')
    await cli.sees(/journal head[\s\S]*caisson>/)
    cli.type('/cost\r')
    await cli.sees(/Tasks: 3[\s\S]*caisson>/)
    cli.type('\u0004')
    const { code, stdout } = await cli.ended
    expect(code).toBe(0)
    const host = new Host({ env: place.env })
    const { runs } = await host.runs.page()
    expect(runs.map(({ state }) => state.end?.outcome)).toEqual(['completed', 'cancelled', 'completed'])
    expect(runs.map(({ continues }) => continues)).toEqual([runs[1]?.id, runs[2]?.id, undefined])
    expect(stdout).toContain(`Come back: caisson chat --continue ${runs[0]?.id}`)
    expect(runs[0]?.keepsVm).toBe(true)
    // The cancelled task keeps the VM too.
    const journal = path.join(place.home, 'runs', runs[0]?.id ?? '', 'journal.jsonl')
    expect(await readFile(journal, 'utf8')).toContain('"start":"saved"')
    const history = path.join(place.home, 'history')
    expect((await stat(history)).mode & 0o777).toBe(0o600)
    expect(await readFile(history, 'utf8')).toContain('/undo\n')
  }, 300_000)
})
