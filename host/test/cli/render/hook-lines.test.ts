import { describe, expect, it } from 'vitest'
import type { HostEvent } from '#specs/protocol/event.ts'
import { initialRunState } from '#specs/protocol/run-state.ts'
import { questionLines } from '../../../cli/render/approval-lines.ts'
import { colorsFor } from '../../../cli/render/colors.ts'
import { eventLines } from '../../../cli/render/event-lines.ts'

const colors = colorsFor({ isTTY: false }, {})
const hook = { type: 'hook-end', point: 'before-tool', hook: 'guard', durationMs: 1 } as const
const shown = (event: HostEvent): string => eventLines({ event }, initialRunState, colors).join('\n')

describe('on the screen', () => {
  it('a hook is seen where it changed something, failed or said no, whatever it says of it [A.10]', () => {
    expect(shown({ ...hook, decision: 'allow' })).toBe('')
    expect(shown({ ...hook, decision: 'deny', reason: 'no\u001b[2J', agentPath: 'root/pen' })).toMatch(
      /\[pen\] hook guard \(before-tool\) denied it: no/,
    )
    expect(shown({ ...hook, decision: 'deny', reason: 'no\u001b[2J' })).not.toContain('\u001b')
    expect(shown({ ...hook, decision: 'allow', failed: true, reason: 'broke' })).toContain(
      'failed and is ignored: broke',
    )
    expect(shown({ ...hook, decision: 'allow', arguments: '{"a":1}' })).toContain(
      'changed the arguments: {"a":1}',
    )
    expect(shown({ ...hook, decision: 'ask' })).toContain('requires approval')
  })

  it('a tool that runs on the host is marked, and a question of the host is not the agent’s [S1.11]', () => {
    const call = { agentPath: 'root', stepId: 's', callId: 'c', tool: 'deploy', arguments: '{"to":"x"}' }
    expect(shown({ type: 'host-tool-start', ...call })).toContain('deploy runs on this host, outside the VM')
    const request = { approvalId: 'host-1', preview: 'Runs deploy on this host.', ...call }
    const asked = { type: 'approval-request', request, digest: 'a'.repeat(64) } as const
    expect(shown({ ...asked, kind: 'enforced' })).toContain('the host asks about deploy')
    expect(shown({ ...asked, kind: 'cooperative' })).toContain('asks to call deploy')
    const head = (isOfHost: boolean): string =>
      questionLines({ ...request, isOfHost }, colors, 80).lines[1] ?? ''
    expect(head(true)).toBe('Approval: Caisson itself asks to run deploy')
    expect(head(false)).toContain('the agent asks')
  })
})
