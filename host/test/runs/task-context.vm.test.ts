// What a run learns and knows, in a real VM: notes from one run to the next, and skills of the user and of the workspace.
import { mkdir, realpath, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { testBench } from '../support/runs.ts'

describe('memory', () => {
  it('goes from one run to the next when a person keeps it, and not before [S0.13] [A.09]', async () => {
    const bench = await testBench({ 'a.txt': 'x' })
    const first = await bench.run('Remember that the tests need Docker')
    expect(first.state.end?.outcome).toBe('completed')
    expect(first.state.proposedNotes).toHaveLength(1)
    expect(first.events).toContainEqual(
      expect.objectContaining({
        type: 'memory-propose',
        agentPath: 'root',
        note: expect.objectContaining({ text: 'the tests need Docker', state: 'proposed' }),
      }),
    )
    expect(await bench.host.notes.list()).toEqual([])
    const notes = await bench.host.runNotes(first.run.id)
    await notes.decide(
      new Map(notes.pending.map(({ note }) => [note.noteId, { keep: true } as const])),
      'a test',
    )
    expect(await bench.host.notes.ofWorkspace(await realpath(bench.workspace))).toHaveLength(1)
    const second = await bench.run('What do you remember about Docker?')
    expect(second.state.end?.summary).toContain('the tests need Docker')
    expect(second.state.proposedNotes).toEqual([])
  }, 240_000)
})

describe('skills', () => {
  it('of the user are loaded from the host, and their scripts run; those of the workspace are its words [A.09 S2.14]', async () => {
    const config = await temporaryFolder('config')
    const folder = path.join(config, 'caisson/skills/greet')
    await mkdir(path.join(folder, 'scripts'), { recursive: true, mode: 0o700 })
    await writeFile(
      path.join(folder, 'SKILL.md'),
      '---\nname: greet\ndescription: Greets\n---\nRun scripts/hello.sh.',
    )
    await writeFile(path.join(folder, 'scripts/hello.sh'), '#!/bin/sh\necho "hello from $0"\n', {
      mode: 0o755,
    })
    const bench = await testBench(
      {
        '.agents/skills/lint/SKILL.md': '---\nname: lint\ndescription: Lints\n---\nUse two spaces.',
        '.agents/skills/greet/SKILL.md': '---\nname: greet\n---\nNot this one.',
      },
      { XDG_CONFIG_HOME: config },
    )
    const step = (id: string, instructions: string, needs: string[] = []) => ({
      id,
      title: id,
      instructions,
      needs,
    })
    const { state, events } = await bench.run('greet', {
      plan: {
        from: {
          goal: 'Greet',
          steps: [
            step('own', 'Load the skill "greet".'),
            step('run', 'Run the command "$HOME/.skills/greet/scripts/hello.sh; id -un".', ['own']),
            step('theirs', 'Load the skill "lint".'),
            step('none', 'Load the skill "fly".', ['run', 'theirs']),
          ].map((each) => ({ ...each, onFailure: 'continue' as const })),
        },
      },
    })
    expect(state.steps.own).toMatchObject({
      state: 'completed',
      text: expect.stringContaining('Run scripts/hello.sh.'),
    })
    expect(state.steps.run?.text).toContain('hello from /home/work/.skills/greet/scripts/hello.sh\nwork')
    expect(state.steps.theirs?.text).toMatch(/A skill of the workspace[\s\S]*Use two spaces\./)
    expect(state.steps.none).toMatchObject({
      state: 'failed',
      text: expect.stringContaining('known are: greet, lint'),
    })
    expect(JSON.stringify(state)).not.toContain('Not this one')
    const noted = events.flatMap((event) => (event.type === 'note' ? [event.text] : []))
    expect(noted.join()).toContain('the skill greet of the workspace is left out')
  }, 240_000)
})
