// Sub-agents in VMs of their own: what they begin with, what is merged, what they may not do, and how they end.
import { readdirSync, readlinkSync } from 'node:fs'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { reply } from '#specs/testing/model-replies.ts'
import type { Asked } from '#specs/testing/model-server.ts'
import type { FeedItem } from '../../journal/run-feed.ts'
import type { Run } from '../../runs/run.ts'
import { findVms, finish, readFiles } from '../support/runs.ts'
import {
  bash,
  benchWith,
  byInstructions,
  call,
  lastSaid,
  plan,
  say,
  spawn,
} from '../support/scripted-agents.ts'

const files = { 'shared.txt': 'shared\n', 'gone.txt': 'gone\n', 'docs/a.md': 'A\n', 'docs/b.md': 'B\n' }
const lead = plan({ id: 'lead', title: 'Lead', instructions: 'LEAD', needs: [], writes: ['*'] })
const vm = { isolation: 'vm' } as const

/** What came of the calls of the last turn. */
const toolTexts = (asked: Asked): string[] =>
  asked.messages.filter(({ role }) => role === 'tool').map(({ content }) => content ?? '')

const requestsOf = (items: readonly FeedItem[]) =>
  items.flatMap((item) =>
    item.source === 'host' && item.event.type === 'approval-request' ? [item.event.request] : [],
  )

/** Whether a run's folder has anything left of sub-agents' VMs. */
const leftOf = (runs: string, id: string): string[] =>
  readdirSync(path.join(runs, id)).filter((name) => name === 'agents')

describe('sub-agents in VMs of their own', () => {
  it('begin with the disk of their parent, and what they change is merged; what conflicts is kept [A.07 S1.13]', async () => {
    const told: string[] = []
    const oneBegan = Promise.withResolvers<void>()
    await using bench = await benchWith(
      byInstructions(lead, {
        LEAD: [
          bash('echo changed >> shared.txt; rm gone.txt; mv docs manual; echo home > ~/kept'),
          reply({
            calls: [spawn('ONE', vm), spawn('TWO')],
          }),
          (asked) => {
            told.push(...toolTexts(asked))
            return reply({ calls: [call('read_agent_file', { agent: 'one', path: 'both.txt' })] })
          },
          (asked) => {
            told.push(lastSaid(asked))
            return reply({ calls: [call('take_agent_file', { agent: 'one', path: 'both.txt' })] })
          },
          say('LEAD is done'),
        ],
        ONE: [
          () => {
            oneBegan.resolve()
            return bash(
              'cat shared.txt ~/kept; ls gone.txt docs manual 2>&1; ls both.txt two.txt 2>&1; cat /proc/sys/kernel/random/boot_id',
            )
          },
          (asked) => {
            told.push(`ONE saw:\n${lastSaid(asked)}`)
            return bash(
              'echo one > both.txt; mv manual/a.md manual/renamed.md; chmod 700 manual/b.md; ln -s shared.txt link; mkdir -p deep/er; echo x > deep/er/x; rm -f shared.txt; mkdir shared.txt; echo in > shared.txt/in',
            )
          },
          reply({ calls: [spawn('THREE')] }),
          say('one is done'),
        ],
        TWO: [
          // In the VM of their parent: what it writes before the VM of the other begins would be in both.
          async () => {
            await oneBegan.promise
            return bash('cp /proc/sys/kernel/random/boot_id two.txt; echo two > both.txt; cat two.txt')
          },
          (asked) => say(lastSaid(asked)),
        ],
        THREE: [bash('cat deep/er/x > three.txt'), say('three is done')],
      }),
      files,
    )
    const { run, state, items } = await bench.run('Share the work')
    expect(state.end).toMatchObject({ outcome: 'completed' })
    const said = told.join('\n')
    expect(said).toContain('ONE saw:\nshared\nchanged\nhome\n')
    expect(said).toContain("cannot access 'gone.txt'")
    expect(said).toContain("cannot access 'two.txt'")
    expect(new Set(said.match(/[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{22}/g)).size).toBe(2)
    expect(said).toContain('[sub-agent one: completed]\none is done')
    expect(said).toContain('changed here and by one')
    expect(said).toContain('--- both.txt, yours\ntwo\n')
    await (await bench.host.changes(run.id)).apply('all')
    const after = await readFiles(bench.workspace)
    expect(after).toMatchObject({
      'both.txt': 'one\n',
      'three.txt': 'x\n',
      'deep/er/x': 'x\n',
      'manual/renamed.md': 'A\n',
      'manual/b.md': 'B\n',
      'shared.txt/in': 'in\n',
    })
    expect(Object.keys(state.agents).sort()).toEqual(['root/one', 'root/one/three', 'root/two'])
    const starts = items.flatMap((item) =>
      item.source === 'agent' && item.event.type === 'agent-start'
        ? [[item.agentPath, item.event.isolation]]
        : [],
    )
    expect(starts).toContainEqual(['root/one', 'vm'])
    expect(starts).toContainEqual(['root/one/three', undefined])
    // What it used is the run's.
    const asked = items.filter((item) => item.source === 'host' && item.event.type === 'model-end').length
    expect(state.usage.requests).toBe(asked)
    expect(await findVms(bench.home)).toEqual([])
    expect(leftOf(bench.host.folders.runs, run.id)).toEqual([])
  }, 300_000)

  it('are held by the host to the hosts and approvals that they were given [A.07 S1.11 S1.04]', async () => {
    const told: string[] = []
    const fetchOne = call('web_fetch', { url: 'https://example.com/' })
    await using bench = await benchWith(
      byInstructions(lead, {
        LEAD: [
          reply({ calls: [spawn('CLOSED', { ...vm, hosts: [], approvals: 'deny' })] }),
          reply({ calls: [spawn('OPEN', { ...vm, hosts: ['other.example'] })] }),
          reply({ calls: [spawn('WRONG', { hosts: [] })] }),
          (asked) => {
            told.push(...toolTexts(asked))
            return say('LEAD is done')
          },
        ],
        CLOSED: [
          reply({
            calls: [fetchOne, call('delete_file', { path: 'gone.txt' }), call('web_search', { query: 'x' })],
          }),
          (asked) => {
            told.push(`CLOSED saw:\n${toolTexts(asked).join('\n')}`)
            return reply({ calls: [spawn('BELOW', vm)] })
          },
          (asked) => say(lastSaid(asked)),
        ],
        OPEN: [
          reply({ calls: [fetchOne, call('delete_file', { path: 'gone.txt' })] }),
          (asked) => {
            told.push(`OPEN saw:\n${toolTexts(asked).join('\n')}`)
            return say('open is done')
          },
        ],
      }),
      files,
    )
    const run = await bench.start('Share the work', {
      approvals: { interactive: true },
      egress: { rules: [{ effect: 'allow', host: 'example.com' }] },
    })
    const finished = finish(run)
    for await (const item of run.watch()) {
      if (item.source !== 'host' || item.event.type !== 'approval-request') continue
      const { approvalId, agentPath } = item.event.request
      if (agentPath === 'root/open') await run.answer(approvalId, { decision: 'allow', scope: 'once' })
      if (agentPath === 'root/open') break
    }
    const { state, items } = await finished
    expect(state.end).toMatchObject({ outcome: 'completed' })
    const said = told.join('\n')
    const [closed = '', open = ''] = ['CLOSED', 'OPEN'].map((name) => said.slice(said.indexOf(`${name} saw`)))
    expect(closed).toContain('may reach only the hosts that it was given')
    expect(open).toContain('may reach only the hosts that it was given')
    // The one was denied without a question; the other asked.
    const asked = requestsOf(items).map(({ agentPath, tool }) => [agentPath, tool])
    expect(asked).toContainEqual(['root/open', 'delete_file'])
    expect(state.agents['root/closed']?.text).toContain('starts no other VM')
    expect(said).toContain('hosts and approvals need the isolation')
    await (await bench.host.changes(run.id)).apply('all')
    expect(Object.keys(await readFiles(bench.workspace))).not.toContain('gone.txt')
    const decided = items.flatMap((item) =>
      item.source === 'host' && item.event.type === 'approval-decision'
        ? [[item.event.decision, item.event.by]]
        : [],
    )
    expect(decided).toEqual([
      ['deny', 'mode'],
      ['allow', 'person'],
    ])
  }, 300_000)

  it('get messages, and end alone: cancelled by a person, or with their VM [A.07 A.08 S1.02]', async () => {
    const told: string[] = []
    const steered = Promise.withResolvers<void>()
    const waits = (name: string) =>
      bash(
        `echo ${name} > ${name}.txt; echo ready; while [ ! -e go.txt ] && [ $((n += 1)) -lt 200 ]; do sleep 0.1; done`,
      )
    await using bench = await benchWith(
      byInstructions(lead, {
        LEAD: [
          reply({ calls: [spawn('HEARS', vm), spawn('STOPS', vm), spawn('DIES', vm)] }),
          (asked) => {
            told.push(...toolTexts(asked))
            return say('LEAD is done')
          },
        ],
        HEARS: [
          bash('echo hears > hears.txt; echo ready'),
          async () => {
            await steered.promise
            return bash('true')
          },
          (asked) =>
            say(JSON.stringify(asked.messages).includes('Use the formal form') ? 'heard' : 'not heard'),
        ],
        STOPS: [waits('stops')],
        DIES: [waits('dies')],
      }),
      files,
    )
    const run = await bench.start('Share the work')
    const finished = finish(run)
    await untilReady(run, 3)
    await run.steer('Use the formal form.', { to: 'hears' })
    steered.resolve()
    await run.cancelAgent('stops', { reason: 'not needed' })
    killVmWith(path.join(bench.host.folders.runs, run.id, 'agents/root.dies/'))
    const { state } = await finished
    expect(state.end).toMatchObject({ outcome: 'completed' })
    expect(state.agents).toMatchObject({
      'root/hears': { state: 'completed', text: 'heard' },
      'root/stops': { state: 'cancelled' },
      'root/dies': { state: 'failed' },
    })
    expect(told.join('\n')).toContain('[Caisson] Cancelled by the person: not needed')
    expect(told.join('\n')).toContain('The VM of the sub-agent ended before its work did')
    expect((await (await bench.host.changes(run.id)).review()).map(({ path: one }) => one)).toEqual([
      'hears.txt',
    ])
    expect(await findVms(bench.home)).toEqual([])
    expect(leftOf(bench.host.folders.runs, run.id)).toEqual([])
  }, 300_000)

  it('begin again with their run after a loss of its VM, from the same files, and are merged once [A.07 R.01]', async () => {
    let begun = 0
    await using bench = await benchWith(
      byInstructions(lead, {
        LEAD: [
          bash('echo before > log.txt'),
          reply({ calls: [spawn('ONE', vm)] }),
          (asked) => say(toolTexts(asked).join('\n')),
        ],
        ONE: [
          () => {
            begun += 1
            return bash('cat log.txt; echo one >> log.txt; echo ready; sleep 600')
          },
          () => {
            begun += 1
            return bash('cat log.txt; echo one >> log.txt')
          },
          say('one is done'),
        ],
      }),
      files,
    )
    const run = await bench.start('Share the work')
    const finished = finish(run)
    await untilReady(run, 1, 'root/one')
    killVmWith(path.join(bench.host.folders.runs, run.id, 'scratch/'))
    const { state, items } = await finished
    expect(state.end).toMatchObject({ outcome: 'completed', summary: expect.stringContaining('one is done') })
    expect(begun).toBe(2)
    await (await bench.host.changes(run.id)).apply('all')
    expect((await readFiles(bench.workspace))['log.txt']).toBe('before\none\n')
    const ends = items.filter((item) => item.source === 'agent' && item.event.type === 'agent-end')
    expect(ends).toHaveLength(1)
    expect(await findVms(bench.home)).toEqual([])
    expect(leftOf(bench.host.folders.runs, run.id)).toEqual([])
  }, 300_000)
})

/** Until that many agents have shown output of a program, or this one. */
async function untilReady(run: Run, count: number, agentPath?: string): Promise<void> {
  const ready = new Set<string>()
  for await (const item of run.watch()) {
    if (item.source !== 'delta' || item.delta.type !== 'tool-output-delta') continue
    if (agentPath === undefined || agentPath === item.agentPath) ready.add(item.agentPath)
    if (ready.size === count) return
  }
}

/** Kills the QEMU that has files of this folder open. */
function killVmWith(folder: string): void {
  const linksOf = (pid: string): string[] =>
    names(`/proc/${pid}/fd`).map((fd) => attempt(() => readlinkSync(`/proc/${pid}/fd/${fd}`)) ?? '')
  const pids = names('/proc').filter(
    (name) =>
      /^\d+$/.test(name) &&
      Number(name) !== process.pid &&
      linksOf(name).some((link) => link.startsWith(folder)),
  )
  expect(pids.length).toBeGreaterThan(0)
  for (const pid of pids) process.kill(Number(pid), 'SIGKILL')
}

const names = (directory: string): string[] => attempt(() => readdirSync(directory)) ?? []

function attempt<T>(work: () => T): T | undefined {
  try {
    return work()
  } catch {
    return undefined
  }
}
