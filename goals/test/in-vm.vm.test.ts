// A goal in a real VM, without HTTP.
import { readdir } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { expect, it } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { Host } from '../../host/index.ts'
import { Agent } from '../index.ts'

it('carries goals out in a VM, and leaves nothing behind when it is closed [S4.01]', async () => {
  const home = await temporaryFolder('agent-home')
  const env = { ...process.env, CAISSON_HOME: home }
  const before = await readdir(tmpdir())
  await using agent = new Agent({ env, onNotes: () => undefined })
  const noted = await agent.run('Add note to PROP-2025-001: Legal review completed', {
    tools: ['governance_note'],
  })
  expect(noted).toEqual({
    status: 'success',
    output: expect.stringContaining('Proposed a note for PROP-2025-001'),
    trace: [expect.objectContaining({ step: 1, tool: 'governance_note', error: null })],
    runId: expect.stringMatching(/^run-/),
  })
  const host = new Host({ env })
  expect((await host.notes.ofProposal('PROP-2025-001')).map(({ text }) => text)).toEqual([
    'Legal review completed',
  ])
  expect(await agent.run('Calculate 6 * 7', { tools: ['no_such_tool'] })).toEqual({
    status: 'error',
    output: expect.stringContaining('no_such_tool'),
    trace: [],
  })
  const under = agent.run('Calculate 6 * 7', { tools: ['math'] })
  await expect.poll(async () => (await host.runs.list()).length, { timeout: 60_000 }).toBe(2)
  await agent.close()
  expect(await under).toMatchObject({ status: 'error', output: 'the agent was closed' })
  expect(await host.vms.list()).toEqual([])
  const left = (await readdir(tmpdir())).filter(
    (name) => name.startsWith('caisson-goal-') && !before.includes(name),
  )
  expect(left).toEqual([])
  expect(await readdir(path.join(home, 'vms')).catch(() => [])).toEqual([])
}, 240_000)
