// biome-ignore-all lint/suspicious/noTemplateCurlyInString: text for bash
import { describe, expect, it } from 'vitest'
import type { ApprovalRequest, ApprovalRule } from '#specs/protocol/approval.ts'
import type { HostEvent } from '#specs/protocol/event.ts'
import { explainCommand } from '../../approvals/command-rules.ts'
import { ApprovalQueue, type ApprovalQueueOptions } from '../../approvals/queue.ts'
import { matchRules, refuseVoidRules } from '../../approvals/rules.ts'
import { doubtfulCommands, knownCommands } from './shell-table.ts'

const call = (command: string) => ({ tool: 'run_bash', arguments: JSON.stringify({ command }) })
const rule = (effect: ApprovalRule['effect'], pattern?: string): ApprovalRule => ({
  effect,
  tool: 'run_bash',
  ...(pattern === undefined ? {} : { pattern }),
})
const allow = (...patterns: string[]) => patterns.map((pattern) => rule('allow', pattern))
const effectOf = (rules: readonly ApprovalRule[], command: string) => matchRules(rules, call(command))?.effect

describe('an allow rule for commands', () => {
  it('allows a call only where rules allow every command of it [A.13 S1.11]', () => {
    for (const [text, ...commands] of knownCommands) {
      const each = [...new Set(commands)]
      expect(effectOf(allow(...each), text), text).toBe('allow')
      for (const left of each) {
        const others = each.filter((command) => command !== left)
        expect(effectOf(allow(...others, 'other *'), text), `${text} without ${left}`).toBeUndefined()
      }
    }
  })

  it('allows no call with another command, however the two are joined [A.13]', () => {
    const rules = allow('ls', 'ls *', '* *.txt')
    expect(effectOf(rules, 'ls -l; ls')).toBe('allow')
    const joined = [
      ...[
        'ls; rm -r .',
        'ls && rm',
        'ls || rm',
        'ls | sh',
        'ls |& sh',
        'ls & rm',
        'ls\nrm',
        'rm; ls',
        'rm | ls a',
      ],
      ...[
        'ls $(rm x)',
        'ls "$(rm x)"',
        'ls `rm x`',
        'ls <(rm x)',
        'ls >(rm x)',
        'ls > /etc/passwd',
        'ls x > /dev/sda',
      ],
      ...[
        'if ls; then rm; fi',
        'for f in a; do ls $f; done',
        'while ls; do rm; done',
        'case ls in ls) rm;; esac',
      ],
      ...[
        '(ls; rm)',
        '{ ls; rm; }',
        'ls() { rm; }; ls',
        'function ls { rm; }; ls',
        'coproc ls',
        'eval ls',
        'X=1 ls',
      ],
      ...[
        'PATH=. ls',
        'ls <<E\n$(rm)\nE',
        'ls \\\n; rm',
        'ls # \\\nrm',
        '! rm; ls',
        'ls $((rm))',
        "ls $'a'; rm",
      ],
      ...[
        'ls ${x:-`rm`}',
        'alias ls=rm\nls',
        'ls &rm',
        'ls;rm',
        'ls|rm',
        'ls&&rm',
        'time ls',
        'exec ls',
        'ls {X}> a',
      ],
    ]
    for (const text of joined) expect(effectOf(rules, text), text).toBeUndefined()
  })

  it('sees through quotes in the name, and keeps apart what they keep apart [A.13]', () => {
    for (const text of ['l"s" a', "'ls' a", '\\ls a'])
      expect(effectOf(allow('ls *'), text), text).toBe('allow')
    expect(effectOf(allow('git status'), '"git status"')).toBeUndefined()
    expect(effectOf(allow('echo a b'), 'echo "a b"')).toBeUndefined()
    for (const pattern of ['echo "a b"', "echo 'a b'", 'echo *'])
      expect(effectOf(allow(pattern), 'echo "a b"'), pattern).toBe('allow')
    expect(effectOf(allow('ls *'), './ls a')).toBeUndefined()
  })

  it('must name the files that a command writes, and each of them [A.13]', () => {
    const rules = allow('echo *', 'echo * > build/*', 'echo * 2> err', 'a > b &>> c')
    for (const text of [
      'echo x',
      'echo x > build/y',
      'echo x >build/y',
      'echo x 1> build/y',
      '> build/y echo x',
    ])
      expect(effectOf(rules, text), text).toBe('allow')
    for (const text of ['echo x 2> err', 'echo x > /dev/null 2>&1', 'a > b &>> c', 'echo x > "build/a b"'])
      expect(effectOf(rules, text), text).toBe('allow')
    const other = ['echo x > src/y', 'echo x >> build/y', 'echo x > build/../y', 'echo x > build/y > src/y']
    for (const text of [...other, 'echo x &> build/y', 'cat x > build/y', 'echo "> build/x" > y', 'a > b'])
      expect(effectOf(rules, text), text).toBeUndefined()
    expect(effectOf(allow('echo "* > build/*"'), 'echo "x > build/y" > src/y')).toBeUndefined()
    expect(effectOf(allow('echo x > build/../y'), 'echo x > build/../y')).toBe('allow')
    expect(effectOf(allow('wc -l'), 'wc -l < x')).toBeUndefined()
    expect(effectOf(allow('wc -l < *'), 'wc -l <x')).toBe('allow')
  })

  it('allows what is not understood only by any text, or exactly the text [A.13]', () => {
    for (const [text] of doubtfulCommands) {
      const broad = [
        'a*',
        '* *',
        '*x',
        '*;*',
        ...(text === '' ? [] : [`${text}*`, `*${text}`, `${text.slice(0, 3)}*`]),
      ]
      expect(effectOf(allow(...broad), text), text).toBeUndefined()
      for (const pattern of ['*', '**', text]) expect(effectOf(allow(pattern), text), text).toBe('allow')
      expect(effectOf([rule('allow')], text), text).toBe('allow')
    }
    expect(effectOf(allow('for f in *.c; do cc $f; done'), 'for f in *.c; do cc $f; done')).toBe('allow')
    expect(effectOf(allow('git status && git log'), 'git status && git log')).toBe('allow')
  })

  it('speaks of other arguments as before', () => {
    const timed = { tool: 'run_bash', arguments: '{"command":"a; b","timeoutMs":5}' }
    const byTime: ApprovalRule = { effect: 'allow', tool: 'run_bash', argument: 'timeoutMs', pattern: '5' }
    expect(matchRules([byTime], timed)?.effect).toBe('allow')
    expect(matchRules([{ ...byTime, argument: 'command', pattern: 'a*' }], timed)).toBeUndefined()
    expect(matchRules([{ effect: 'allow', tool: '*', pattern: 'a*' }], timed)).toBeUndefined()
  })

  it('is refused where it spells several commands with a star, because it would never apply [A.13]', () => {
    for (const pattern of ['cd * && npm test', 'git *; ls', 'cat * | head'])
      expect(() => refuseVoidRules(allow(pattern), 'FILE'), pattern).toThrow(
        `FILE: the allow rule ${JSON.stringify(pattern)} never applies, because a rule allows one command.`,
      )
    const fine = allow('git *', '*', 'a && b', 'for f in *; do ls $f; done', 'echo "*; *"', 'echo * > x')
    expect(() => refuseVoidRules([...fine, rule('deny', 'cat * | sh')], 'FILE')).not.toThrow()
    expect(() =>
      refuseVoidRules([{ effect: 'allow', tool: 'run_python', pattern: 'a*;b' }], 'FILE'),
    ).not.toThrow()
  })

  it('is named in the decision with the others that allow the call together [A.13]', () => {
    const rules = allow('ls *', 'git *', 'rm *')
    expect(matchRules(rules, call('git a | ls b; git c'))?.rules).toEqual([rules[1], rules[0]])
  })
})

describe('a deny or ask rule for commands', () => {
  it('applies where any command matches, or the whole text [A.13 S1.11]', () => {
    for (const effect of ['deny', 'ask'] as const) {
      for (const [text, ...commands] of knownCommands) {
        for (const pattern of [...commands, text])
          expect(effectOf([rule('allow'), rule(effect, pattern)], text), `${pattern}: ${text}`).toBe(effect)
        expect(effectOf([rule('allow'), rule(effect, 'other *')], text), text).toBe('allow')
      }
      for (const [text] of doubtfulCommands)
        expect(effectOf([rule('allow'), rule(effect, text)], text), text).toBe(effect)
    }
  })

  it('meets a command in each spelling, and by the name of its program alone [A.13]', () => {
    const spelled = [
      'r"m" x y',
      '\\rm x y',
      '/bin/rm x y',
      '"/bin/rm" x y',
      'rm  x   y',
      'ls; rm "x" \'y\'',
      'rm x y > z',
    ]
    for (const text of [...spelled, 'rm x y < z', 'ls | rm x y &'])
      for (const pattern of ['rm x y', 'rm *'])
        expect(effectOf([rule('deny', pattern)], text), `${pattern}: ${text}`).toBe('deny')
    expect(effectOf([rule('deny', 'cat my file')], 'cat "my file"')).toBe('deny')
    expect(effectOf([rule('deny', '>z rm x')], 'ls; ! >z rm x; ls')).toBe('deny')
    expect(effectOf([rule('deny', '*> src/*')], 'ls; echo x >src/y')).toBe('deny')
    expect(effectOf([rule('deny', 'rm *')], 'echo "; rm x"')).toBeUndefined()
  })

  it('asks about what is not understood and might match, unless a rule allows exactly this text [A.13]', () => {
    for (const [text] of doubtfulCommands) {
      const strict = rule('deny', 'unlikely')
      const ruling = matchRules([rule('allow'), rule('allow', '*'), strict], call(text))
      expect(ruling, text).toEqual({ effect: 'ask', rules: [strict], isUnsure: true })
      expect(effectOf([strict, rule('allow', text)], text), text).toBe('allow')
      const other: ApprovalRule = { effect: 'deny', tool: 'run_bash', argument: 'timeoutMs', pattern: '7' }
      const timed = { tool: 'run_bash', arguments: JSON.stringify({ command: text, timeoutMs: 5 }) }
      expect(matchRules([rule('allow'), other], timed)?.effect, text).toBe('allow')
    }
  })
})

describe('a person’s yes to a command in this run', () => {
  const asks = (approvalId: string, command: string): ApprovalRequest => ({
    approvalId,
    runId: 'run-00000000000000000001',
    agentPath: 'root',
    stepId: 's',
    callId: 'c',
    preview: '',
    ...call(command),
  })
  const open = (options: Partial<ApprovalQueueOptions> = {}) => {
    const events: HostEvent[] = []
    const record = async (event: HostEvent) => events.push(event)
    const queue = new ApprovalQueue({ mode: 'ask', rules: [], interactive: true, record, ...options })
    return { queue, events }
  }
  const same = { decision: 'allow', scope: 'run', reach: 'command' } as const

  it('answers the same text and no other, for commands of any kind [A.13 S1.11]', async () => {
    for (const [text] of [...knownCommands, ...doubtfulCommands]) {
      const { queue, events } = open()
      const first = queue.ask(asks('a', text))
      const again = queue.ask(asks('b', text))
      const longer = [`${text}; rm -r .`, `${text}\nrm -r .`, `rm -r . && ${text}`, `${text} `, `$(${text})`]
      const others = longer.map((other, at) => queue.ask(asks(`c${at}`, other)))
      await expect.poll(() => queue.pending).toHaveLength(7)
      expect(queue.answer('a', same), text).toEqual({ taken: true })
      expect([await first, await again], text).toEqual([{ decision: 'allow' }, { decision: 'allow' }])
      expect(queue.pending, text).toEqual(['c0', 'c1', 'c2', 'c3', 'c4'])
      expect(await queue.ask(asks('d', text)), text).toEqual({ decision: 'allow' })
      expect(events.at(-1)).toMatchObject({ by: 'person', scope: 'run', reach: 'command' })
      queue.close()
      expect(await Promise.all(others)).toEqual(others.map(() => ({ decision: 'deny' })))
    }
  })

  it('is offered for commands alone, and not where a rule or a hook asks each time [A.13]', async () => {
    const offers = async (request: ApprovalRequest, rules: readonly ApprovalRule[] = [], mustAsk = false) => {
      const { queue, events } = open({ rules })
      void queue.ask(request, undefined, undefined, { mustAsk })
      await expect.poll(() => queue.pending).toEqual(['a'])
      const [event] = events
      const answers = event?.type === 'approval-request' ? event.answers : undefined
      const isOffered = answers?.some(({ reach }) => reach === 'command')
      expect(queue.answer('a', same).taken).toBe(isOffered)
      return isOffered
    }
    expect(await offers(asks('a', 'ls; ls'))).toBe(true)
    expect(await offers(asks('a', 'ls $(x)'), [rule('deny', 'rm *')])).toBe(true)
    expect(await offers(asks('a', 'ls'), [rule('ask', 'ls')])).toBe(false)
    expect(await offers(asks('a', 'ls'), [], true)).toBe(false)
    expect(await offers({ ...asks('a', 'ls'), tool: 'run_python' })).toBe(false)
  })

  it('is not taken as a no, for once, or for always [A.13]', async () => {
    const { queue } = open()
    void queue.ask(asks('a', 'ls'))
    await expect.poll(() => queue.pending).toEqual(['a'])
    for (const over of [
      { decision: 'deny' },
      { scope: 'once' },
      { scope: 'always' },
      { reach: 'host' },
    ] as const)
      expect(queue.answer('a', { ...same, ...over }).taken, JSON.stringify(over)).toBe(false)
    expect(queue.answer('a', same).taken).toBe(true)
  })

  it('lifts no deny or ask rule, and no hook [A.13]', async () => {
    const { queue } = open()
    void queue.ask(asks('a', 'ls'))
    await expect.poll(() => queue.pending).toEqual(['a'])
    queue.answer('a', same)
    void queue.ask(asks('b', 'ls'), undefined, undefined, { mustAsk: true })
    await expect.poll(() => queue.pending).toEqual(['b'])
    const ruled = open({ rules: [rule('deny', 'rm *')] })
    void ruled.queue.ask(asks('a', 'if x; then rm y; fi'))
    await expect.poll(() => ruled.queue.pending).toEqual(['a'])
    ruled.queue.answer('a', same)
    expect(await ruled.queue.ask(asks('b', 'if x; then rm y; fi'))).toEqual({ decision: 'allow' })
    expect(await ruled.queue.ask(asks('c', 'x; rm y'))).toEqual({ decision: 'deny' })
  })
})

describe('the words of a question', () => {
  const explain = (rules: readonly ApprovalRule[], command: string) => explainCommand(rules, call(command))

  it('say which command no rule allows, or why that is not certain [A.13]', async () => {
    expect(explain(allow('git *'), 'git status; "rm" -r "a b"; x')).toBe("no rule allows: rm -r 'a b'")
    expect(explain(allow('git *'), 'git $(x)')).toBe(
      'Caisson cannot tell which commands this runs: there is a command substitution',
    )
    expect(explain([rule('deny', 'rm *')], 'ls')).toBeUndefined()
    expect(explain([rule('ask', 'ls'), ...allow('git *')], 'ls')).toBeUndefined()
    expect(explain([rule('deny', 'rm *'), ...allow('git *')], 'git a; ls')).toBe('no rule allows: ls')
    expect(explain(allow('git *', 'git a; ls'), 'git a; ls')).toBe('no rule allows: ls')
    expect(explain([{ effect: 'allow', tool: 'delete_file', pattern: 'x*' }], 'ls')).toBeUndefined()
    expect(explain([rule('ask')], 'ls $(x)')).toBeUndefined()
    expect(explainCommand(allow('git *'), { tool: 'run_python', arguments: '{}' })).toBeUndefined()
  })
})
