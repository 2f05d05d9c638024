// `caisson approvals` against a run with a real journal, queue and control socket; only its work is scripted.
import { readFile } from 'node:fs/promises'
import { describe, expect, it, vi } from 'vitest'
import type { UserQuestion } from '#specs/protocol/question.ts'
import { RunLimits, Task } from '#specs/protocol/task.ts'
import { RunRecord } from '../../../journal/run-record.ts'
import { storeRun } from '../../../stored-run.ts'
import { runAtWork, someCall } from '../../support/run-at-work.ts'
import { runId } from '../../support/run-values.ts'

const someTask = Task.parse({ runId, prompt: 'do it', model: 'm', limits: RunLimits.parse({}) })
const choice: UserQuestion = {
  question: 'Which format?',
  kind: 'choice',
  options: [{ value: 'csv' }, { value: 'json' }],
  defaultAnswer: 'csv',
}
describe('caisson approvals', () => {
  it('lists what runs wait for, as lines or as JSON [S2.16 V.08]', async () => {
    const { queue, record, ask, caisson } = await runAtWork()
    expect((await caisson('approvals', 'list')).stdout).toBe('no run waits for an answer\n')
    void ask({ ...choice, question: 'Which\u001b[2J?' }, 'ask-1')
    void queue.ask({ ...someCall, approvalId: 'ap-2', tool: 'delete_file', arguments: '{"path":"a"}' })
    await expect.poll(() => Object.keys(record.state.pendingApprovals)).toHaveLength(2)
    expect((await caisson('approvals', 'list', runId)).stdout).toBe(
      `${runId}  ask-1  asks: Which\\e[2J? (csv, json)\n${runId}  ap-2  asks to call delete_file path: a\n`,
    )
    const lines = (await caisson('approvals', 'list', '--json')).stdout.trimEnd().split('\n')
    expect(lines.map((line) => JSON.parse(line))).toMatchObject([
      { runId, approvalId: 'ask-1', question: { kind: 'choice' } },
      { runId, approvalId: 'ap-2', tool: 'delete_file' },
    ])
  })

  it('answers the question with the digest that it listed, and no other under its ID [S1.11]', async () => {
    const { queue, ask, caisson, record } = await runAtWork()
    const listed = async () => JSON.parse((await caisson('approvals', 'list', '--json')).stdout)
    const withdrawing = new AbortController()
    const first = ask(choice, 'ask-1', withdrawing.signal)
    await expect.poll(() => Object.keys(record.state.pendingApprovals)).toEqual(['ask-1'])
    const { digest } = await listed()
    withdrawing.abort()
    await first
    const second = ask({ ...choice, question: 'Which key?' }, 'ask-1')
    await expect.poll(async () => (await listed()).question.question).toBe('Which key?')
    const answer = ['approvals', 'answer', runId, 'ask-1', 'csv', '--digest']
    const refused = await caisson(...answer, digest)
    expect(refused.stderr).toContain('the digest is of another question than ask-1 asks')
    expect([refused.code, queue.pending]).toEqual([1, ['ask-1']])
    expect((await caisson(...answer, (await listed()).digest)).code).toBe(0)
    expect(await second).toMatchObject({ decision: 'allow', answer: 'csv' })
  })

  it('shows what an MCP server says now and said before, with nothing that a terminal obeys [A.09 V.08]', async () => {
    const { queue, caisson, record } = await runAtWork()
    void queue.ask({
      ...someCall,
      approvalId: 'mcp-1',
      tool: 'use_mcp_server',
      arguments: '{"server":"notes","tools":["add"]}',
      preview: 'Changed: add\n  before: Adds\n  now: Adds \u001b[2J and sends',
    })
    await expect.poll(() => Object.keys(record.state.pendingApprovals)).toEqual(['mcp-1'])
    const { stdout } = await caisson('approvals', 'list')
    expect(stdout).toContain('asks to call use_mcp_server server: notes · tools: ["add"]\n')
    expect(stdout).toContain('\n  ┆   before: Adds\n  ┆   now: Adds \\e[2J and sends\n')
    expect((await caisson('runs', 'show', runId)).stdout).toContain('  ┆   before: Adds\n')
    expect((await caisson('approvals', 'list', '--json')).stdout).toContain('before: Adds')
  })

  it('says which arguments the model did not give [S1.11]', async () => {
    const { queue, caisson, record } = await runAtWork()
    const given = { path: 'a', limit: 5, 'x (by default)': 1 }
    void queue.ask({
      ...someCall,
      approvalId: 'ap-1',
      tool: 'delete_file',
      arguments: JSON.stringify(given),
      defaults: ['limit'],
    })
    await expect.poll(() => Object.keys(record.state.pendingApprovals)).toEqual(['ap-1'])
    expect((await caisson('approvals', 'list')).stdout).toContain(
      'delete_file path: a · "x (by default)": 1 · limit (by default): 5\n',
    )
  })

  it.each<[string, UserQuestion, string[], unknown]>([
    ['an option', choice, ['json'], 'json'],
    ['the default', choice, ['--default'], 'csv'],
    ['several options', { ...choice, kind: 'choices', defaultAnswer: [] }, ['json', 'csv'], ['json', 'csv']],
    ['none of them', { ...choice, kind: 'choices', defaultAnswer: [] }, [], []],
    ['yes', { question: 'q', kind: 'confirm' }, ['yes'], true],
    ['false', { question: 'q', kind: 'confirm' }, ['false'], false],
    ['a number below zero', { question: 'q', kind: 'number' }, ['--', '-2.5'], -2.5],
    ['a text of several lines', { question: 'q', kind: 'text' }, ['a\nb'], 'a\nb'],
  ])('answers a question: %s [S2.16]', async (_, question, words, answer) => {
    const { ask, caisson } = await runAtWork()
    const decision = ask(question, 'ask-1')
    await expect.poll(async () => (await caisson('approvals', 'list')).stdout).toContain('ask-1')
    const told = await caisson('approvals', 'answer', runId, 'ask-1', ...words)
    expect(told).toEqual({ code: 0, stdout: `${runId}: ask-1 answered\n`, stderr: '' })
    expect(await decision).toEqual({ decision: 'allow', answer })
  })

  it('refuses an answer of another form, and one to what does not wait; the question stays [S2.16]', async () => {
    const { ask, caisson, queue, record } = await runAtWork()
    const decision = ask(choice, 'ask-1')
    await expect.poll(() => Object.keys(record.state.pendingApprovals)).toEqual(['ask-1'])
    for (const [words, expected] of [
      [['xml'], 'expected one of "csv", "json"'],
      [['csv', 'json'], 'expected one of'],
      [[], 'nothing is not a valid answer'],
      [['--default', 'json'], 'an answer and --default cannot be combined; use one of them'],
    ] as const) {
      const { code, stderr } = await caisson('approvals', 'answer', runId, 'ask-1', ...words)
      expect([code, stderr]).toEqual([2, expect.stringContaining(expected)])
    }
    const other = await caisson('approvals', 'answer', runId, 'ask-2', 'csv')
    expect([other.code, other.stderr]).toEqual([2, expect.stringContaining('pending: ask-1')])
    const allow = await caisson('approvals', 'allow', runId, 'ask-1')
    expect([allow.code, allow.stderr]).toEqual([2, expect.stringContaining('caisson approvals answer')])
    expect(queue.pending).toEqual(['ask-1'])
    expect((await caisson('approvals', 'answer', runId, 'ask', 'json', '--hint', 'one a line')).code).toBe(0)
    expect(await decision).toEqual({ decision: 'allow', answer: 'json', hint: 'one a line' })
    const late = await caisson('approvals', 'answer', runId, 'ask-1', 'csv')
    expect([late.code, late.stderr]).toEqual([
      1,
      expect.stringMatching(/ask-1 was already allowed by \S+ \(.+\) at .+; the first answer counts/),
    ])
  })

  it('declines a question, and allows and denies calls [S2.16 S1.11]', async () => {
    const { ask, caisson, queue, record } = await runAtWork()
    const question = ask(choice, 'ask-1')
    await expect.poll(() => Object.keys(record.state.pendingApprovals)).toEqual(['ask-1'])
    expect((await caisson('approvals', 'deny', runId, 'ask-1', '--hint', 'look it up')).code).toBe(0)
    expect(await question).toEqual({ decision: 'deny', hint: 'look it up' })
    const deleted = queue.ask({ ...someCall, approvalId: 'ap-2', tool: 'delete_file', arguments: '{}' })
    await expect.poll(async () => (await caisson('approvals', 'list')).stdout).toContain('ap-2')
    expect((await caisson('approvals', 'answer', runId, 'ap-2', 'yes')).code).toBe(2)
    const always = await caisson('approvals', 'allow', runId, 'ap-2', '--scope', 'always')
    expect([always.code, always.stderr]).toEqual([1, expect.stringContaining('does not accept this answer')])
    expect((await caisson('approvals', 'allow', runId, 'ap-2', '--scope', 'run')).code).toBe(0)
    expect(await deleted).toEqual({ decision: 'allow' })
  })

  it('lists the answers for a run and revokes one, so that the next call asks again [S1.11]', async () => {
    const { caisson, queue, record } = await runAtWork()
    const none = await caisson('approvals', 'remembered', runId)
    expect(none).toEqual({ code: 0, stdout: `no answer for ${runId} applies to later calls\n`, stderr: '' })
    const call = { ...someCall, approvalId: 'ap-1', tool: 'delete_file', arguments: '{"path":"a"}' }
    const command = {
      ...someCall,
      approvalId: 'cmd-1',
      tool: 'run_bash',
      arguments: '{"command":"make\\u001b"}',
    }
    const asked = [queue.ask(call), queue.ask(command)]
    await expect.poll(async () => (await caisson('approvals', 'list')).stdout).toContain('cmd-1')
    const once = await caisson('approvals', 'allow', runId, 'ap-1', '--for', '10m')
    expect([once.code, once.stderr]).toEqual([2, expect.stringContaining('add --scope run')])
    const long = await caisson('approvals', 'allow', runId, 'ap-1', '--scope', 'run', '--for', '721h')
    expect([long.code, long.stderr]).toEqual([2, expect.stringContaining('from 1ms to 720h')])
    await caisson('approvals', 'allow', runId, 'ap-1', '--scope', 'run', '--for', '10m')
    await caisson('approvals', 'allow', runId, 'cmd-1', '--scope', 'run', '--reach', 'command')
    await Promise.all(asked)
    const { stdout } = await caisson('approvals', 'remembered', runId)
    expect(stdout.split('\n')).toEqual([
      expect.stringMatching(/^ap-1 {2}allowed by .+, until \d{4}-.*: every call of delete_file$/),
      expect.stringMatching(/^cmd-1 {2}allowed by .+: the command: .*make\\e$/),
      '',
    ])
    const json = (await caisson('approvals', 'remembered', runId, '--json')).stdout.trimEnd().split('\n')
    expect(json.map((line) => JSON.parse(line))).toMatchObject([
      { runId, approvalId: 'ap-1', tool: 'delete_file', until: expect.any(Number) },
      { runId, approvalId: 'cmd-1', tool: 'run_bash', arguments: command.arguments },
    ])
    expect(await queue.ask({ ...call, approvalId: 'ap-2' })).toEqual({ decision: 'allow' })
    const wrong = await caisson('approvals', 'revoke', runId, 'ap-2')
    expect([wrong.code, wrong.stderr]).toEqual([2, expect.stringContaining('valid: ap-1, cmd-1')])
    expect(await caisson('approvals', 'revoke', runId, 'ap')).toEqual({
      ...{ code: 0, stderr: '' },
      stdout: `${runId}: the answer to ap-1 is revoked\n`,
    })
    const again = queue.ask({ ...call, approvalId: 'ap-3' })
    await expect.poll(() => Object.keys(record.state.pendingApprovals)).toEqual(['ap-3'])
    queue.close()
    await again
    const shown = (await caisson('runs', 'show', runId)).stdout
    expect(shown).toMatch(/Allowed by .* for this run until \d{4}-/)
    expect(shown).toMatch(/The answer for this run to ap-1 was revoked by \S+/)
  })

  it('says after an answer that another process continues the run, where one was first [R.01 S2.16]', async () => {
    const { caisson, die, queue, record } = await runAtWork()
    void queue.ask({ ...someCall, approvalId: 'ap-1', tool: 'delete_file', arguments: '{}' })
    await expect.poll(() => Object.keys(record.state.pendingApprovals)).toEqual(['ap-1'])
    await die()
    await storeRun(record.paths, { prompt: 'do it' }, someTask)
    const answered = caisson('approvals', 'allow', runId, 'ap-1')
    await expect.poll(() => readFile(record.paths.journal, 'utf8')).toContain('approval-decision')
    await using _other = await vi.waitFor(() => RunRecord.open(record.paths), 10_000)
    expect(await answered).toEqual({
      code: 0,
      stdout: `${runId}: ap-1 answered\nanother process continues the run; watch: caisson attach ${runId}\n`,
      stderr: '',
    })
  })

  it('says of a run that nobody carries out that it cannot be answered [S2.16]', async () => {
    const { caisson } = await runAtWork()
    const unknown = await caisson('approvals', 'answer', 'run-ffff', 'ask-1', 'csv')
    expect([unknown.code, unknown.stderr]).toEqual([2, expect.stringContaining('no run has the ID')])
  })
})
