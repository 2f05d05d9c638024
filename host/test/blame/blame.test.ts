import { describe, expect, it } from 'vitest'
import type { Blame, LineOrigin } from '../../blame/blame.ts'
import { changedRunId } from '../support/changed-run.ts'
import { diffOf, runThatTold } from './support.ts'

const diffAt = (path: string, before: string, after: string) => diffOf([path, before, after])
const lines = (...texts: string[]) => texts.map((text) => `${text}\n`).join('')

/** Each line with the calls that made it, by id. */
function short({ lines: all, calls }: Blame): string[] {
  return all.map(({ text, origin }) => `${text}: ${shortOrigin(origin, calls)}`)
}

function shortOrigin(origin: LineOrigin | undefined, calls: Blame['calls']): string {
  if (origin === undefined) return ''
  if (origin.kind === 'workspace')
    return `${origin.path}:${origin.line}${origin.moved === undefined ? '' : ` by ${calls[origin.moved]?.callId}`}`
  if (origin.kind === 'call') return calls[origin.call]?.callId ?? '?'
  const named = origin.calls.map((call) => calls[call]?.callId ?? '?')
  return `one of ${[...named, ...(origin.access ? ['a person'] : [])].join(' ')}`
}

describe('the lines of a file that a run changed', () => {
  it('name the call that made each, with its turn, task, message and approval [W.09]', async () => {
    const [one, two, three] = [lines('a', 'b'), lines('a', 'x', 'b'), lines('a', 'x', 'y')]
    const { blame } = await runThatTold({ f: one }, { f: three }, async (told) => {
      await told.host({ type: 'steer-request', messageId: 'm1', text: 'be quick', by: 'ann' })
      await told.event('root', { type: 'steer-seen', stepId: 'work', messageIds: ['m1'] })
      await told.turn(1, ['c1'])
      await told.edit([['f', one, two]])
      await told.turn(2, ['c2'])
      const request = {
        agentPath: 'root',
        stepId: 'work',
        callId: 'c2',
        tool: 'edit_file',
        arguments: '{}',
        preview: '',
      }
      await told.host({
        type: 'approval-request',
        kind: 'cooperative',
        request: { approvalId: 'ap-1', ...request },
        digest: '0'.repeat(64),
      })
      await told.host({
        type: 'approval-decision',
        approvalId: 'ap-1',
        decision: 'allow',
        scope: 'run',
        by: 'person',
        name: 'bob',
      })
      await told.edit([['f', two, three]])
    })
    const found = await blame('f')
    expect(short(found)).toEqual(['a: f:1', 'x: c1', 'y: c2'])
    expect(
      found.removed.map(({ line, text, origin }) => [line, text, shortOrigin(origin, found.calls)]),
    ).toEqual([[2, 'b', 'c2']])
    expect(found).toMatchObject({ change: 'modified', prompt: 'p' })
    const [first, second] = found.calls
    expect(first).toMatchObject({
      tool: 'edit_file',
      summary: 'f',
      output: 'done',
      turn: { turn: 1, text: 'turn 1', reasoning: 'thought 1' },
    })
    expect(first?.messages).toEqual([{ text: 'be quick', by: 'ann' }])
    expect(first?.approval).toBeUndefined()
    expect(second?.approval).toMatchObject({ decision: 'allow', scope: 'run', by: 'person', name: 'bob' })
  })

  it('that no diff explains name the one command that can have made them, or all of them [W.09]', async () => {
    const [one, two] = [lines('a', 'b', 'c'), lines('a', 'B', 'c')]
    const { blame } = await runThatTold(
      { f: one, g: 'old\n' },
      { f: lines('a', 'B', 'c', 'd'), g: 'new\n' },
      async (told) => {
        await told.edit([['f', one, two]])
        await told.command('echo d >> f')
        await told.call('read_file', { path: 'f' }, { reads: ['f'] })
      },
    )
    expect(short(await blame('f'))).toEqual(['a: f:1', 'B: c1', 'c: f:3', 'd: c2'])
    expect(short(await blame('g'))).toEqual(['new: c2'])
    const several = await runThatTold({ f: one }, { f: two }, async (told) => {
      await told.command('sed -i s/b/B/ f')
      await told.command('true')
      await told.host({ type: 'vm-access', kind: 'shell', detail: '' })
    })
    expect(short(await several.blame('f'))).toEqual(['a: f:1', 'B: one of c1 c2 a person', 'c: f:3'])
  })

  it('keep their calls where a command shifted the file between two edits [W.09]', async () => {
    const base = lines(...Array.from({ length: 40 }, (_, index) => `line ${index}`))
    const one = base.replace('line 30\n', 'thirty\n')
    const shifted = lines('top 1', 'top 2') + one
    const two = shifted.replace('line 10\n', 'ten\n')
    const { blame } = await runThatTold({ f: base }, { f: two }, async (told) => {
      await told.edit([['f', base, one]])
      await told.command('add a header')
      await told.edit([['f', shifted, two]])
    })
    const found = short(await blame('f'))
    expect(found.filter((line) => !/: f:\d+$/.test(line))).toEqual([
      'top 1: c2',
      'top 2: c2',
      'ten: c3',
      'thirty: c1',
    ])
  })

  it('come from the file that was renamed, by a call or a patch [W.09]', async () => {
    const old = lines('a', 'b')
    const { blame } = await runThatTold(
      { 'd/f': old, g: old },
      { 'e/f': lines('a', 'b', 'c'), h: lines('a', 'B') },
      async (told) => {
        await told.edit([['d/f', old, lines('a', 'b', 'c')]])
        await told.call('move_file', { from: 'd', to: 'e' }, { writes: ['d', 'e'] })
        const patch = '*** Begin Patch\n*** Update File: g\n*** Move to: h\n@@\n a\n-b\n+B\n*** End Patch\n'
        await told.call(
          'apply_patch',
          { patch },
          { writes: ['g', 'h'], diffs: [diffAt('h', old, lines('a', 'B'))] },
        )
      },
    )
    const moved = await blame('e/f')
    expect(short(moved)).toEqual(['a: d/f:1 by c2', 'b: d/f:2 by c2', 'c: c1'])
    expect(moved.change).toBe('added')
    expect(short(await blame('h'))).toEqual(['a: g:1 by c3', 'B: c3'])
    const folder = await blame('d')
    expect(shortOrigin(folder.deletion, folder.calls)).toBe('c2')
    const gone = await blame('g')
    expect([gone.change, gone.lines, shortOrigin(gone.deletion, gone.calls)]).toEqual(['deleted', [], 'c3'])
    expect(gone.removed.map(({ text, origin }) => `${text} ${shortOrigin(origin, gone.calls)}`)).toEqual([
      'a c3',
      'b c3',
    ])
  })

  it('name what deleted a file, and what made it anew [W.09]', async () => {
    const old = lines('a', 'b')
    const { blame } = await runThatTold({ f: old, g: old, h: old }, { f: lines('a', 'z') }, async (told) => {
      await told.command('make')
      await told.call('delete_file', { path: 'f' }, { writes: ['f'] })
      await told.edit([['f', '', lines('a', 'z')]])
      await told.call('delete_file', { path: 'g' }, { writes: ['g'] })
    })
    expect(short(await blame('f'))).toEqual(['a: c3', 'z: c3'])
    const [g, h] = [await blame('g'), await blame('h')]
    expect(shortOrigin(g.deletion, g.calls)).toBe('c4')
    expect(shortOrigin(h.deletion, h.calls)).toBe('c1')
  })

  it('of sub-agents are those of the file that was merged; a conflict leaves the parent’s, until it takes the other [W.09]', async () => {
    const old = lines('a', 'b')
    const [mine, theirs] = [lines('a', 'mine'), lines('theirs', 'b')]
    const after = { f: theirs, g: mine, h: theirs, i: old + lines('c') }
    const { blame } = await runThatTold({ f: old, g: old, h: old, i: old }, after, async (told) => {
      await told.startAgent('root/one')
      await told.edit(
        [
          ['f', old, theirs],
          ['g', old, theirs],
          ['h', old, theirs],
        ],
        'root/one',
      )
      await told.edit([
        ['g', old, mine],
        ['h', old, mine],
      ])
      await told.endAgent('root/one', 1, ['g', 'h'])
      await told.call('take_agent_file', { agent: 'one', path: 'h' }, { writes: ['h'] })
      await told.startAgent('root/two')
      await told.edit([['i', old, lines('lost')]], 'root/two')
      await told.command('true', 'root/two')
      await told.endAgent('root/two', 0)
      await told.startAgent('root/three')
      await told.command('echo c >> i', 'root/three')
      await told.endAgent('root/three', 1)
    })
    expect(short(await blame('f'))).toEqual(['theirs: c1', 'b: f:2'])
    expect((await blame('f')).calls[0]).toMatchObject({
      agentPath: 'root/one',
      brief: 'the task of root/one',
    })
    expect(short(await blame('g'))).toEqual(['a: g:1', 'mine: c2'])
    expect(short(await blame('h'))).toEqual(['theirs: c1', 'b: h:2'])
    expect(short(await blame('i'))).toEqual(['a: i:1', 'b: i:2', 'c: c6'])
  })

  it('of what was done again after a loss name the call that did it again [W.09]', async () => {
    const [old, first, again] = [lines('a'), lines('a', 'b'), lines('a', 'b', 'c')]
    const { blame } = await runThatTold({ f: old }, { f: again }, async (told) => {
      await told.edit([['f', old, first]])
      await told.checkpoint('cp-0d4f1a8be2c6937f')
      await told.edit([['f', first, again]])
      await told.command('true')
      await told.host({ type: 'run-resume', epoch: 2, checkpointId: 'cp-0d4f1a8be2c6937f', message: '' })
      await told.edit([['f', first, again]])
    })
    expect(short(await blame('f'))).toEqual(['a: f:1', 'b: c1', 'c: c4'])
    const anew = await runThatTold({ f: old }, { f: first }, async (told) => {
      await told.edit([['f', old, first]])
      await told.host({ type: 'run-resume', epoch: 2, checkpointId: null, message: '' })
      await told.edit([['f', old, first]])
    })
    expect(short(await anew.blame('f'))).toEqual(['a: f:1', 'b: c2'])
  })

  it('beyond what a diff has room for, and of tools that report none, name the call [W.09]', async () => {
    const text = lines(...Array.from({ length: 50 }, (_, index) => `line ${index}`))
    const { blame } = await runThatTold({}, { f: text, g: 'x\n' }, async (told) => {
      const whole = diffAt('f', '', text)
      await told.command('ls')
      await told.call(
        'write_file',
        { path: 'f' },
        { writes: ['f'], diffs: [{ ...whole, diff: whole.diff?.slice(0, 100) }] },
      )
      await told.call('write_file', { path: 'g' }, { writes: ['g'] })
    })
    const found = short(await blame('f'))
    expect(found[0]).toBe('line 0: c2')
    expect(found.at(-1)).toBe('line 49: one of c2 c1')
    expect(short(await blame('g'))).toEqual(['x: one of c3 c1'])
  })

  it('are explained from what is kept when the changes were applied and undone [W.09]', async () => {
    const [old, after] = [lines('a', 'b'), lines('a', 'x')]
    const { blame, host } = await runThatTold({ f: old, g: old }, { f: after }, async (told) => {
      await told.edit([['f', old, after]])
      await told.call('delete_file', { path: 'g' }, { writes: ['g'] })
    })
    const before = [await blame('f'), short(await blame('g'))]
    const changes = await host.changes(changedRunId)
    await changes.apply('all')
    expect([await blame('f'), short(await blame('g'))]).toEqual(before)
    await changes.undo()
    expect([await blame('f'), short(await blame('g'))]).toEqual(before)
  })

  it('are refused with the reason: no change, no text, too many lines, too much [W.09]', async () => {
    const { blame, host } = await runThatTold(
      { f: 'a\n', same: 'a\n', kept: Buffer.from([0, 1]) },
      {
        f: Buffer.from([0, 1, 2]),
        same: 'a\n',
        long: 'x\n'.repeat(20_001),
        big: 'x'.repeat(1024 * 1024 + 1),
        link: '-> f',
        kept: 'text\n',
      },
      async () => {},
    )
    await expect(blame('same')).rejects.toThrow('no change of')
    await expect(blame('f')).rejects.toThrow('it is no text in UTF-8')
    await expect(blame('kept')).rejects.toMatchObject({ code: 'not_possible_now' })
    await expect(blame('link')).rejects.toThrow('the run made no file of it')
    await expect(blame('long')).rejects.toMatchObject({ code: 'not_possible_now' })
    await expect(blame('big')).rejects.toMatchObject({ code: 'not_possible_now' })
    const stop = AbortSignal.abort(new Error('stop'))
    await expect(host.blame(changedRunId, 'f', { signal: stop })).rejects.toMatchObject({
      code: 'not_possible_now',
    })
  })
})
