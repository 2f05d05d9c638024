import { describe, expect, it } from 'vitest'
import type { AgentEvent } from '#specs/protocol/event.ts'
import type { HookRequest } from '#specs/protocol/hook.ts'
import { HookEventValidator } from '../../../runs/guest/hook-claims.ts'

const runId = `run-${'0'.repeat(20)}`
const toolEnd = (tool: string, error = false): AgentEvent => ({
  type: 'tool-end',
  stepId: 's',
  callId: 'c',
  tool,
  output: 'o',
  durationMs: 1,
  ...(error ? { error: { code: 'denied', message: 'm', retryable: false } } : {}),
})
const ask = (point: 'before-tool' | 'after-tool', tool: string, agentPath = 'root'): HookRequest => ({
  hookId: 'h',
  runId,
  agentPath,
  stepId: 's',
  subject: {
    point,
    callId: 'c',
    tool,
    arguments: '{}',
    ...(point === 'after-tool' ? { output: 'o' } : {}),
  } as HookRequest['subject'],
})
const askStep = (point: 'before-step' | 'after-step', agentPath: string, stepId: string): HookRequest => ({
  hookId: 'h',
  runId,
  agentPath,
  stepId,
  subject: {
    point,
    title: 't',
    instructions: 'i',
    ...(point === 'after-step' ? { state: 'completed', text: '' } : {}),
  } as HookRequest['subject'],
})
const stepEnd = (state: 'completed' | 'failed' = 'completed'): AgentEvent => ({
  type: 'step-end',
  stepId: 's',
  state,
  text: '',
})

describe('an agent with hooks', () => {
  it('is believed about a call only when it asked about that call, of that tool, for that agent [A.10]', () => {
    const hooks = [{ point: 'before-tool' as const, tools: ['run_*'] }, { point: 'after-tool' as const }]
    const claims = (...asked: HookRequest[]): HookEventValidator => {
      const made = new HookEventValidator(hooks)
      for (const one of asked) made.note(one)
      return made
    }
    expect(claims().check('root', toolEnd('run_bash'))).toContain('before-tool hook was never asked')
    expect(claims(ask('before-tool', 'run_bash')).check('root', toolEnd('run_bash'))).toContain('after-tool')
    const both = [ask('before-tool', 'run_bash'), ask('after-tool', 'run_bash')]
    expect(claims(...both).check('root', toolEnd('run_bash'))).toBeNull()
    expect(claims(...both).check('root/pen', toolEnd('run_bash'))).toContain('run_bash')
    expect(
      claims(ask('before-tool', 'read_file'), ask('after-tool', 'read_file')).check(
        'root',
        toolEnd('run_bash'),
      ),
    ).not.toBeNull()
    expect(claims(ask('after-tool', 'read_file')).check('root', toolEnd('read_file'))).toBeNull()
    expect(claims().check('root', toolEnd('run_bash', true))).toBeNull()
    // What was asked for one call does not do for the next.
    const twice = claims(...both)
    expect([
      twice.check('root', toolEnd('run_bash')),
      twice.check('root', toolEnd('run_bash')),
    ]).toMatchObject([null, expect.any(String)])
  })

  it('does not pass by a hook under another spelling or name of the tool [A.10]', () => {
    const hooks = [{ point: 'before-tool' as const, tools: ['run_bash', 'docs_*'] }]
    for (const name of ['Run-Bash', 'shell_cmd', 'SHELL-CMD', 'functions.run_bash', 'Docs-Read']) {
      expect(new HookEventValidator(hooks).check('root', toolEnd(name))).toContain(
        'before-tool hook was never asked',
      )
      const claims = new HookEventValidator(hooks)
      const asked = ask('before-tool', name === 'Docs-Read' ? 'docs_read' : 'run_bash')
      claims.note(asked)
      expect(claims.check('root', toolEnd(name))).toBeNull()
      claims.note(asked)
      claims.noteRefusal(asked)
      expect(claims.check('root', toolEnd(name))).toContain('that a hook refused')
    }
    expect(new HookEventValidator(hooks).check('root', toolEnd('run_python'))).toBeNull()
  })

  it('is not believed about what a hook refused [A.10]', () => {
    const claims = new HookEventValidator([{ point: 'before-tool' }, { point: 'before-step' }])
    claims.note(ask('before-tool', 'run_bash'))
    claims.noteRefusal(ask('before-tool', 'run_bash'))
    expect(claims.check('root', toolEnd('run_bash'))).toContain('that a hook refused')
    claims.note(askStep('before-step', 'root', 's'))
    claims.noteRefusal(askStep('before-step', 'root', 's'))
    expect(claims.check('root', stepEnd('failed'))).toBeNull()
    expect(claims.check('root', stepEnd())).toContain('that a hook refused')
    claims.note(ask('before-tool', 'run_bash'))
    claims.noteRefusal(ask('before-tool', 'run_bash'))
    expect(claims.check('root', toolEnd('run_bash', true))).toBeNull()
  })

  it('is believed about a step and about a sub-agent’s work only when it asked about them [A.10]', () => {
    const claims = new HookEventValidator([{ point: 'before-step' }, { point: 'after-step' }])
    expect(claims.check('root', stepEnd())).toContain('before-step')
    expect(claims.check('root', stepEnd('failed'))).toBeNull()
    claims.note(askStep('before-step', 'root', 's'))
    expect(claims.check('root', stepEnd())).toContain('after-step')
    claims.note(askStep('after-step', 'root', 's'))
    expect(claims.check('root', stepEnd())).toBeNull()
    const end = { type: 'agent-end', state: 'completed' } as AgentEvent
    expect(claims.check('root/pen', end)).toContain('root/pen')
    for (const point of ['before-step', 'after-step'] as const)
      claims.note(askStep(point, 'root/pen', 'agent'))
    expect(claims.check('root/pen', end)).toBeNull()
  })
})
