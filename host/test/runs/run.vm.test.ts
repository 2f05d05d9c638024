import { existsSync } from 'node:fs'
import { readdir, readFile } from 'node:fs/promises'
import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { describe, expect, it, onTestFinished } from 'vitest'
import { exampleTask } from '../../../examples/task.ts'
import { findVms, finish, readFiles, testBench } from '../support/runs.ts'

const data = 'seattle-weather.csv'
const example = path.join(import.meta.dirname, '../../../examples', exampleTask.directory)

describe('a run in a real VM', () => {
  it('carries out the example end to end: plan, steps, change set, apply, undo, and again [S0.01 S0.05 S1.01 S1.02 S1.03 S1.04 S1.07 S1.10 S4.06 W.01]', async () => {
    // The data alone: whoever called scripts/run before has its report and chart in that folder.
    const bench = await testBench({ [data]: await readFile(path.join(example, data), 'utf8') })
    const before = await readFiles(bench.workspace)
    const { run, events, state, items } = await bench.run(exampleTask.prompt)
    expect(state.end).toMatchObject({ outcome: 'completed', reason: 'completed' })
    const types = events.map(({ type }) => type)
    expect(types.indexOf('plan-update')).toBeLessThan(types.indexOf('step-start'))
    expect(state.plan?.steps.length).toBeGreaterThanOrEqual(2)
    expect(types.filter((type) => type === 'run-end')).toHaveLength(1)
    expect(items.some(({ source }) => source === 'delta')).toBe(true)

    const changes = await bench.host.changes(run.id)
    expect((await changes.review()).map(({ path: name, change }) => [name, change])).toEqual([
      ['chart.svg', 'added'],
      ['report.md', 'added'],
    ])
    expect(await readFiles(bench.workspace)).toEqual(before)
    await changes.apply('all')
    const after = await readFiles(bench.workspace)
    expect(Object.keys(after).sort()).toEqual(['chart.svg', 'report.md', data])
    checkReport(after['report.md'] ?? '', before[data] ?? '')
    expect(after['chart.svg']).toMatch(/^<svg[\s\S]*<\/svg>\s*$/)
    await changes.undo()
    expect(await readFiles(bench.workspace)).toEqual(before)

    await changes.apply('all')
    const second = await bench.run(exampleTask.prompt)
    expect(second.state.end?.outcome).toBe('completed')
    expect(await findVms(bench.home)).toEqual([])
  })

  it('waits for an approval, keeps a denied file and brings an allowed deletion home [S1.11 W.02]', async () => {
    const bench = await testBench({ 'old.txt': 'old\n', 'keep.txt': 'keep\n' })
    const denied = await decide(bench, 'Delete old.txt', 'deny')
    expect(denied.asked).toMatchObject({ tool: 'delete_file', preview: expect.stringContaining('old.txt') })
    expect(denied.finished.state.changes?.entries).toBe(0)
    const allowed = await decide(bench, 'Delete old.txt', 'allow')
    expect(allowed.finished.state.end?.outcome).toBe('completed')
    const changes = await bench.host.changes(allowed.finished.run.id)
    expect((await changes.review()).map(({ path: name, change }) => [name, change])).toEqual([
      ['old.txt', 'deleted'],
    ])
    await changes.apply('all')
    expect(await readFiles(bench.workspace)).toEqual({ 'keep.txt': 'keep\n' })
  })

  it('gives its approvals to a function and its result to whoever waits; without one it is denied, with a warning [H.05 S1.11]', async () => {
    const bench = await testBench({ 'old.txt': 'old\n', 'keep.txt': 'keep\n' })
    const { host, workspace } = bench
    const vm = { memoryBytes: 512 * 1024 ** 2 }
    const asked: string[] = []
    const run = await host.run({
      prompt: 'Delete old.txt',
      workspace,
      vm,
      onApproval: ({ tool, preview }) => {
        asked.push(`${tool}: ${preview}`)
        return 'allow'
      },
    })
    const result = await run.result()
    expect(asked).toEqual([expect.stringMatching(/^delete_file: .*old\.txt/)])
    expect(result).toMatchObject({
      runId: run.id,
      outcome: 'completed',
      changes: { entries: 1, flagged: [] },
    })
    expect(result.journalHead).toMatch(/^[0-9a-f]{64}$/)
    expect(result.usage.requests).toBeGreaterThan(0)

    const warnings: string[] = []
    const onWarning = (warning: Error) => warnings.push(warning.message)
    process.on('warning', onWarning)
    onTestFinished(() => void process.off('warning', onWarning))
    const unanswered = await (await host.run({ prompt: 'Delete keep.txt', workspace, vm })).result()
    expect(unanswered).toMatchObject({ outcome: 'failed', reason: 'denied' })
    expect(warnings).toContainEqual(expect.stringMatching(/pass onApproval/))
  })

  it('collects a renamed folder, and nothing of a file that was written with what it had [W.01 W.02]', async () => {
    const bench = await testBench({ 'docs/a.md': 'A\n', 'docs/deep/b.md': 'B\n', 'same.md': 'S\n' })
    const { run, state } = await bench.run(
      'Run the command `mv docs manual && chmod +x manual/a.md && ln -s a.md manual/link && echo S > same.md`',
    )
    expect(state.end?.outcome).toBe('completed')
    const changes = await bench.host.changes(run.id)
    expect((await changes.review()).map((item) => item.path)).not.toContain('same.md')
    await changes.apply('all')
    const after = { 'manual/a.md': 'A\n', 'manual/deep/b.md': 'B\n', 'same.md': 'S\n' }
    expect(await readFiles(bench.workspace)).toEqual(after)
    expect(existsSync(path.join(bench.workspace, 'docs'))).toBe(false)
  })

  it('cancels a command that runs, ends once, and leaves no VM [S1.03 V.06]', async () => {
    const bench = await testBench({ 'a.txt': 'a\n' })
    const run = await bench.start('Run the command `echo begun > begun.txt; cat begun.txt; sleep 300`')
    const finished = finish(run)
    for await (const item of run.watch()) {
      if (item.source === 'delta' && item.delta.type === 'tool-output-delta') break
    }
    void run.cancel()
    const { events, state } = await finished
    expect(state.end).toMatchObject({ outcome: 'cancelled', reason: 'cancelled' })
    expect(events.filter(({ type }) => type === 'run-end')).toHaveLength(1)
    expect(await findVms(bench.home)).toEqual([])
    expect((await (await bench.host.changes(run.id)).review()).map((item) => item.path)).toEqual([
      'begun.txt',
    ])
  })

  it('saves its VM while a person thinks, and continues in a new session with the answer [V.04 S1.11]', async () => {
    const bench = await testBench({ 'a.txt': 'a\n', 'b.txt': 'b\n' })
    const vm = { memoryBytes: 512 * 1024 ** 2, hibernateAfterMs: 200 }
    const run = await bench.start('Delete b.txt', { approvals: { interactive: true }, vm })
    const finished = finish(run)
    let asked = ''
    for await (const item of run.watch()) {
      if (item.source !== 'host') continue
      if (item.event.type === 'approval-request') asked = item.event.request.approvalId
      if (item.event.type !== 'vm-sleep') continue
      // No process and no memory, for as long as it takes.
      expect(await findVms(bench.home)).toEqual([])
      await sleep(1_000)
      expect(await findVms(bench.home)).toEqual([])
      expect(await run.answer(asked, { decision: 'allow', scope: 'once' })).toMatchObject({ taken: true })
    }
    const { events, state } = await finished
    expect(state.end).toMatchObject({ outcome: 'completed' })
    const types = events.map(({ type }) => type)
    expect(types.filter((type) => type === 'vm-sleep' || type === 'vm-wake')).toEqual(['vm-sleep', 'vm-wake'])
    expect(events).toContainEqual(expect.objectContaining({ type: 'session-start', resumed: true }))
    expect(types.filter((type) => type === 'approval-request')).toHaveLength(1)
    expect(await (await bench.host.changes(run.id)).review()).toMatchObject([{ path: 'b.txt' }])
    expect(await findVms(bench.home)).toEqual([])
  })

  it('is cancelled while its VM sleeps: it wakes, and what was done is collected [V.04 S1.03]', async () => {
    const bench = await testBench({ 'a.txt': 'a\n', 'b.txt': 'b\n' })
    const vm = { memoryBytes: 512 * 1024 ** 2, hibernateAfterMs: 200 }
    const run = await bench.start('Delete b.txt', { approvals: { interactive: true }, vm })
    const finished = finish(run)
    for await (const item of run.watch()) {
      if (item.source !== 'host' || item.event.type !== 'vm-sleep') continue
      expect(await run.setVmPaused(true)).toContain('not running')
      void run.cancel()
    }
    const { events, state } = await finished
    expect(state.end).toMatchObject({ outcome: 'cancelled' })
    const types = events.map(({ type }) => type)
    expect(types).toContain('vm-wake')
    expect(types).toContain('changes-ready')
    expect(await findVms(bench.home)).toEqual([])
    const left = await readdir(path.join(bench.home, 'runs', run.id))
    expect(left.filter((name) => name.startsWith('hibernated'))).toEqual([])
  })

  it('works beside another run on the same folder, which is locked only while it is copied [R.06]', async () => {
    const bench = await testBench({ 'a.txt': 'a\n' })
    const first = await bench.start('Run the command `sleep 300`')
    for await (const item of first.watch()) {
      if (item.source === 'host' && item.event.type === 'workspace-ready') break
    }
    const second = await bench.run('List the files')
    expect(second.state.end).toMatchObject({ outcome: 'completed' })
    expect(first.state.end).toBeNull()
    void first.cancel({ now: true })
    await first.ended
  })

  it('has no network access but the model route, and no key inside [S1.14 G.01 G.03]', async () => {
    const bench = await testBench(
      { 'a.txt': 'a\n' },
      { NVIDIA_API_KEY: 'nvapi-never-in-the-guest-0123456789', CAISSON_MODEL: 'caisson/offline' },
    )
    const probe =
      'env; cat /proc/1/environ; ls /sys/class/net; curl -sS -m 5 http://192.0.2.1/ ; curl -sS -m 5 https://example.com/; echo curl=$?'
    const { events, state } = await bench.run(`Run the command \`${probe}\``)
    expect(state.end?.outcome).toBe('completed')
    const output = events.flatMap((event) => (event.type === 'tool-end' ? [event.output] : [])).join('\n')
    expect(output).toMatch(/curl=[1-9]/)
    expect(JSON.stringify(events)).not.toContain('nvapi-never')
    expect(output).not.toMatch(/\b(?:eth|en[ps])\d/)
  })
})

async function decide(
  bench: Awaited<ReturnType<typeof testBench>>,
  prompt: string,
  decision: 'allow' | 'deny',
) {
  const run = await bench.start(prompt, { approvals: { interactive: true } })
  const finished = finish(run)
  let asked: object | undefined
  for await (const item of run.watch()) {
    if (item.source !== 'host' || item.event.type !== 'approval-request') continue
    asked = item.event.request
    expect(await run.answer(item.event.request.approvalId, { decision, scope: 'once' })).toMatchObject({
      taken: true,
    })
  }
  return { asked, finished: await finished }
}

/** The report's numbers, computed here from the file in another way. */
function checkReport(report: string, csv: string): void {
  const [header = '', ...lines] = csv.trimEnd().split(/\r?\n/)
  const names = header.split(',')
  const rows = lines.map((line) => line.split(','))
  const plain = report.replaceAll('\\_', '_').replaceAll(/(\d),(?=\d{3})/g, '$1')
  expect(plain).toContain(String(rows.length))
  for (const name of ['precipitation', 'temp_max', 'temp_min', 'wind']) {
    const values = rows.map((row) => Number(row[names.indexOf(name)]))
    const mean = values.reduce((sum, value) => sum + value, 0) / values.length
    const wanted = [Math.min(...values), Math.max(...values)]
    const rowsOfTables = plain
      .split('\n')
      .filter((line) => line.startsWith('|') && line.includes(` ${name} `))
    const summary = rowsOfTables.map((line) =>
      [...line.matchAll(/-?\d+(?:\.\d+)?/g)].map(([text]) => Number(text)),
    )
    const numbers = summary.find((found) => wanted.every((value) => found.includes(value))) ?? []
    expect([name, numbers]).toEqual([name, expect.arrayContaining(wanted)])
    expect([name, mean, numbers.some((number) => Math.abs(number - mean) < 0.0006)]).toEqual([
      name,
      mean,
      true,
    ])
  }
}
