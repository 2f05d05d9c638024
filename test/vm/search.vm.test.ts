import { mkdirSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { expect, it } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import type { CodeSearchResult } from '../../agent/tools/search-code.ts'
import { startProbeVm } from './probe-vm.ts'

it('search_code finds in the VM what is there, what a program wrote, and no more what it deleted; a view is searched apart [S0.14]', async () => {
  const workspace = await temporaryFolder('search-vm')
  mkdirSync(path.join(workspace, 'src'))
  writeFileSync(path.join(workspace, 'src/retry.ts'), 'export function retryWithBackoff() {}\n')
  writeFileSync(path.join(workspace, 'src/other.ts'), 'export const nothing = 0\n')
  await using probe = await startProbeVm(192 * 1024 * 1024, workspace)
  const search = async (query: string, root?: string): Promise<string[]> => {
    const asked = { op: 'search', query, ...(root === undefined ? {} : { root }) } as const
    const { result } = await probe.ask<{ result: { ok: boolean; value: CodeSearchResult } }>(asked)
    expect(result).toMatchObject({ ok: true, value: { notes: [] } })
    return result.value.passages.map((passage) => passage.path)
  }
  const bash = (command: string) =>
    probe.ask({ op: 'tool', name: 'run_bash', input: { command, timeoutMs: 60_000 } })

  expect(await search('retry backoff')).toEqual(['src/retry.ts'])
  await bash('mkdir new && echo "def sleep_then_retry(): pass" > new/sleep.py && rm src/other.ts')
  expect(await search('sleep then retry')).toEqual(['new/sleep.py', 'src/retry.ts'])
  expect(await search('nothing')).toEqual([])
  const view = await probe.ask<{ value: { path: string }[] }>({ op: 'views-open', views: ['one'] })
  const root = view.value[0]?.path
  expect((await search('retry', root)).sort()).toEqual(['new/sleep.py', 'src/retry.ts'])
  await bash('echo "later on" > later.txt')
  expect(await search('later')).toEqual(['later.txt'])
  expect(await search('later', root)).toEqual([])
  // SQLite in Node could say that it is an experiment; nothing of that reaches the console.
  expect(probe.vm.console.text()).not.toMatch(/ExperimentalWarning|sqlite/i)
}, 300_000)
