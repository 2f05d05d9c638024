import { mkdir, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import type { HostEvent } from '#specs/protocol/event.ts'
import { initialRunState, reduceRun } from '#specs/protocol/run-state.ts'
import { RunLimits } from '#specs/protocol/task.ts'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { colorsFor } from '../../cli/render/colors.ts'
import { unknownCallLines } from '../../cli/render/hook-lines.ts'
import { Journal } from '../../journal/journal.ts'
import { RunStore } from '../../journal/run-store.ts'
import { findContinued } from '../../runs/continued-run.ts'

const good = 'run-00000000000000000001'
const bad = 'run-00000000000000000002'

/** A store with one run that worked on the directory of this process, which is where a path that is empty leads to. */
async function makeStore() {
  const home = await temporaryFolder('continued')
  const folders = { runs: path.join(home, 'runs'), locks: path.join(home, 'locks') }
  for (const folder of [folders.runs, folders.locks]) await mkdir(folder)
  const store = new RunStore(folders)
  const directory = process.cwd()
  await begin(store, good, directory)
  return { store, directory }
}

/** A run with nothing known but its start. */
async function begin(store: RunStore, runId: string, directory: string, continues?: string) {
  const { journal } = await store.create(runId)
  const written = await Journal.open({ runId, path: journal, locks: path.dirname(journal), now: () => 1_000 })
  await written.append({
    source: 'host',
    event: {
      type: 'run-start',
      prompt: 'List the files',
      model: 'm',
      provider: 'offline',
      directory,
      ...(continues === undefined ? {} : { continues }),
      limits: RunLimits.parse({}),
      imageKey: 'a'.repeat(64),
      agentDigest: 'b'.repeat(64),
    },
  })
  await written.close()
}

describe('the run that another continues', () => {
  it.each([
    ['is damaged', 'x\n'],
    ['holds nothing yet', ''],
  ])('is never one whose journal %s, wherever this process stands [V.04]', async (_, content) => {
    const { store, directory } = await makeStore()
    const { journal } = await store.create(bad)
    await writeFile(journal, content)
    expect(await findContinued(store, 'last', directory)).toMatchObject({ runId: good })
    await expect(findContinued(store, bad, directory)).rejects.toThrow()
  })

  it('leaves its VM to the next where one in between ended before it took it [V.04]', async () => {
    const { store, directory } = await makeStore()
    await begin(store, bad, directory, good)
    const last = 'run-00000000000000000003'
    await begin(store, last, directory, bad)
    expect(await findContinued(store, last, directory)).toMatchObject({ kept: store.paths(last).kept })
    await mkdir(store.paths(good).kept)
    expect(await findContinued(store, last, directory)).toMatchObject({
      runId: last,
      kept: store.paths(good).kept,
      keptBy: good,
    })
    await mkdir(store.paths(last).kept)
    expect(await findContinued(store, last, directory)).toMatchObject({ kept: store.paths(last).kept })
  })

  it('tells of calls on the host whose end nobody recorded, so that none is repeated blindly', async () => {
    const { store, directory } = await makeStore()
    const { journal } = store.paths(good)
    const written = await Journal.open({
      runId: good,
      path: journal,
      locks: path.dirname(journal),
      now: () => 1_000,
    })
    const call = { agentPath: 'root', stepId: 's', tool: 'deploy', arguments: '{"to":"x"}' }
    const note = (event: HostEvent) => written.append({ source: 'host', event })
    await note({ type: 'host-tool-start', ...call, callId: 'c1' })
    await note({ type: 'host-tool-end', tool: 'deploy', callId: 'c1', durationMs: 1 })
    await note({ type: 'host-tool-start', ...call, callId: 'c2', arguments: '{"to":"y"}' })
    await written.close()
    const { context } = await findContinued(store, good, directory)
    expect(Object.values(context).join()).toMatch(/may have had an effect.*deploy\(\{"to":"y"\}\)/)
    expect(Object.values(context).join()).not.toContain('"to":"x"')
    const state = (await store.read(good)).reduce(reduceRun, initialRunState)
    expect(unknownCallLines(state, colorsFor({ isTTY: false }, {}))).toEqual([
      'Unknown: deploy {"to":"y"} started on this host, but the journal has no result; check its effects before you repeat it',
    ])
  })

  it('is refused by name when it has not begun [V.04]', async () => {
    const { store, directory } = await makeStore()
    await writeFile((await store.create(bad)).journal, '')
    await expect(findContinued(store, bad, directory)).rejects.toMatchObject({ code: 'run_not_found' })
  })
})
