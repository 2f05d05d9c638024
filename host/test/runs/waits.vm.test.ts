// What a watcher knows of a run with a slow model server, command and person: each wait is announced while it lasts.
// The other side holds its answer until the watcher knows of the wait, so that no speed of the machine matters.
import { describe, expect, it } from 'vitest'
import { initialRunState, type RunState, reduceRun } from '#specs/protocol/run-state.ts'
import { type PlainReply, reply } from '#specs/testing/model-replies.ts'
import { startModelServer } from '#specs/testing/model-server.ts'
import { LiveRows } from '../../cli/render/live-rows.ts'
import type { Run } from '../../runs/run.ts'
import { textOf } from '../control/support.ts'
import { testBench } from '../support/runs.ts'

const waiting = { timeout: 60_000 }

/** What somebody knows who has seen the run so far, by its events and as the terminal says it. */
class Watcher {
  state: RunState = initialRunState
  readonly rows = new LiveRows()
  /** What was waited for before the agent worked. */
  readonly preparing: string[] = []

  async follow(run: Run): Promise<void> {
    for await (const item of run.watch()) {
      this.rows.take(item)
      if (item.source !== 'delta') this.state = reduceRun(this.state, item)
      else if (item.delta.type === 'prepare') this.preparing.push(item.delta.what)
    }
  }

  /** Kinds of open waits. */
  get open(): string[] {
    const { openRequests, openCalls, pendingApprovals } = this.state
    return [
      ...Object.keys(openRequests).map(() => 'model'),
      ...Object.values(openCalls).map(({ tool }) => tool),
      ...Object.keys(pendingApprovals).map(() => 'approval'),
    ]
  }
}

describe('a watcher of a run', () => {
  it('knows of each wait while it lasts: VM, model, command, person; and of its end [S1.10 H.01]', async () => {
    const watcher = new Watcher()
    const call = (name: string, args: object): PlainReply => ({
      calls: [{ id: `call${name.slice(0, 5)}`, name, arguments: args }],
    })
    const replies = [
      call('run_bash', { command: 'until [ -e /tmp/go ]; do sleep 0.2; done' }),
      call('delete_file', { path: 'a.txt' }),
    ]
    await using model = await startModelServer(async ({ messages }) => {
      await expect.poll(() => watcher.open, waiting).toContain('model')
      await expect.poll(() => watcher.rows.hint(), waiting).toBe('waiting for the model')
      return reply(
        replies[messages.filter(({ role }) => role === 'tool').length] ?? { text: 'a.txt is deleted.' },
      )
    })
    const env = { CAISSON_LLM_URL: model.baseUrl, CAISSON_MODEL: 'test/model' }
    const bench = await testBench({ 'a.txt': 'a\n' }, env)
    const run = await bench.start('Delete a.txt', {
      approvals: { interactive: true },
      onApproval: async () => {
        await expect.poll(() => watcher.open, waiting).toContain('approval')
        return 'allow' as const
      },
    })
    const watched = watcher.follow(run)
    await expect.poll(() => watcher.open, { timeout: 240_000 }).toContain('run_bash')
    const vm = await bench.host.vms.find(run.id)
    const shell = await vm.openShell({ argv: ['touch', '/tmp/go'], terminal: null })
    shell.stdin.end()
    await Promise.all([textOf(shell.stdout), textOf(shell.stderr), shell.ended])
    await Promise.all([watched, run.ended])
    expect(watcher.state.end).toMatchObject({ outcome: 'completed' })
    expect(watcher.preparing).toEqual(expect.arrayContaining(['workspace', 'vm']))
    expect(model.asked).toHaveLength(3)
    expect(watcher.open).toEqual([])
  }, 300_000)
})
