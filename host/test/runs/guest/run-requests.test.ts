import { describe, expect, it } from 'vitest'
import type { ApprovalRequest } from '#specs/protocol/approval.ts'
import type { HookDecision } from '#specs/protocol/hook.ts'
import { ApprovalQueue } from '../../../approvals/queue.ts'
import { type CodeHook, codeHook } from '../../../hooks/code-hook.ts'
import { RunHooks } from '../../../hooks/run-hooks.ts'
import type { BoundedLog } from '../../../journal/bounded-log.ts'
import type { RunRecord } from '../../../journal/run-record.ts'
import { RunRequests } from '../../../runs/guest/run-requests.ts'
import type { ResolvedRun } from '../../../runs/resolved-run.ts'

const runId = `run-${'0'.repeat(20)}`
const never = new AbortController().signal
const note = async (): Promise<void> => undefined

/** A run whose person says yes to whatever hooks put before them. */
function open(hook: CodeHook): { requests: RunRequests; asked: ApprovalRequest[] } {
  const asked: ApprovalRequest[] = []
  const hooks = new RunHooks({
    runId,
    hooks: [codeHook(hook)],
    note,
    ask: async (request) => {
      asked.push(request)
      return { decision: 'allow' }
    },
  })
  const plan = { limits: { maxToolCalls: 10 }, mode: 'work', approvals: { rules: [] } }
  const approvals = new ApprovalQueue({ mode: 'ask', rules: [], interactive: true, record: note })
  const parts = {
    hooks,
    approvals,
    record: { host: note } as unknown as RunRecord,
    log: {} as BoundedLog,
    hostCallResults: new Map(),
    recorder: { web: () => undefined, flush: () => Promise.resolve() },
  }
  return { requests: new RunRequests(plan as unknown as ResolvedRun, parts), asked }
}

async function askBefore(
  requests: RunRequests,
  tool: string,
  json = '{}',
  more: { defaults?: string[] } = {},
): Promise<HookDecision> {
  const subject = { point: 'before-tool', callId: 'c', tool, arguments: json, ...more } as const
  return await requests.runHook({ hookId: 'h', runId, agentPath: 'root', stepId: 's', subject }, never)
}
const isAllowed = (requests: RunRequests, tool: string, json = '{}'): boolean =>
  requests.isAllowed({ agentPath: 'root', callId: 'c', tool, arguments: json })

describe('what a hook had a person decide', () => {
  it('answers the question whether a call may be made, and none to which there is more to say than yes [A.10, S1.11, S2.16]', async () => {
    const { requests } = open({ point: 'before-tool', run: () => ({ decision: 'ask' }) })
    for (const tool of ['run_bash', 'ask_user', 'request_access', 'use_mcp_server', 'submit_plan'])
      expect((await askBefore(requests, tool)).decision).toBe('allow')
    expect(isAllowed(requests, 'run_bash', ' { } ')).toBe(true)
    expect(isAllowed(requests, 'run_bash', '{"command":"x"}')).toBe(false)
    for (const tool of ['ask_user', 'request_access', 'use_mcp_server', 'submit_plan'])
      expect(isAllowed(requests, tool)).toBe(false)
  })

  it('says which arguments the model did not give, unless the hook gave others [A.10, S1.11]', async () => {
    const given = '{"limit":5,"path":"a"}'
    const told: unknown[] = []
    const { requests, asked } = open({
      point: 'before-tool',
      run: ({ defaults }) => {
        told.push(defaults)
        return { decision: 'ask' }
      },
    })
    await askBefore(requests, 'read_file', given, { defaults: ['limit'] })
    await askBefore(requests, 'read_file', given)
    const changing = open({
      point: 'before-tool',
      run: () => ({ decision: 'ask', arguments: { limit: 6, path: 'a' } }),
    })
    await askBefore(changing.requests, 'read_file', given, { defaults: ['limit'] })
    expect(told).toEqual([['limit'], undefined])
    expect([...asked, ...changing.asked].map(({ defaults }) => defaults)).toEqual([
      ['limit'],
      undefined,
      undefined,
    ])
  })

  it('is all of the call: what is too long or too deep to be shown is denied [A.10, S1.11]', async () => {
    const { requests, asked } = open({ point: 'before-tool', run: () => ({ decision: 'ask' }) })
    const numbers = `{"list":[${Array.from({ length: 50_000 }, () => '1e20').join(',')}],"tail":"x"}`
    const deep = `{"list":${'['.repeat(100_000)}${']'.repeat(100_000)}}`
    for (const json of [numbers, deep]) {
      expect((await askBefore(requests, 'run_bash', json)).decision).toBe('deny')
      expect(isAllowed(requests, 'run_bash', json)).toBe(false)
    }
    expect(asked).toEqual([])
    const long = { command: 'x'.repeat(300_000) }
    const changing = open({ point: 'before-tool', run: () => ({ decision: 'ask', arguments: long }) })
    expect((await askBefore(changing.requests, 'run_bash')).decision).toBe('deny')
    expect(changing.asked).toEqual([])
  })
})
