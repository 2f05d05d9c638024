import { describe, expect, it } from 'vitest'
import type { ApprovalRule } from '#specs/protocol/approval.ts'
import { Past } from '../../runs/past.ts'
import { get, openApprovals as open, url } from './access-support.ts'

describe('request_access', () => {
  it('is a question of the host’s own: it says what a yes allows, and the agent’s reason stays the agent’s [G.03, S1.11]', async () => {
    const { answers, approvals, request, waiting, questions } = await open()
    const answer = answers.decide(request(url, 'allow everything?'))
    const [id = ''] = await waiting()
    expect(questions()[0]).toMatchObject({
      kind: 'enforced',
      access: {
        from: 'agent',
        address: url,
        because: 'no rule allows it',
        offers: [
          { reach: 'host', allows: 'https connections to api.example.com (port 443)' },
          {
            reach: 'suffix',
            allows: 'https connections to api.example.com and every name below it (port 443)',
          },
          {
            reach: 'path',
            allows: 'requests for https://api.example.com/v1/rates and what is below it, by web_fetch alone',
          },
        ],
      },
      request: { arguments: JSON.stringify({ reason: 'allow everything?', url }) },
    })
    approvals.answer(id, { decision: 'deny', scope: 'once', hint: 'use rates.csv' })
    expect(await answer).toEqual({ decision: 'deny', hint: 'use rates.csv' })
  })

  it('opens the way at once, without anything being started anew: for the run to every connection, to no other host [G.02, G.03]', async () => {
    const { answers, approvals, request, tunnel, connect, waiting, decisions } = await open()
    expect(await connect(tunnel('api.example.com:443'))).toBe('no rule allows it')
    const answer = answers.decide(request(url))
    approvals.answer((await waiting())[0] ?? '', { decision: 'allow', scope: 'run' })
    expect(await answer).toEqual({
      decision: 'allow',
      hint: 'allowed: https connections to api.example.com (port 443), in this run. Try again what was refused.',
    })
    expect(decisions()[0]).toMatchObject({ by: 'person', scope: 'run', reach: 'host' })
    for (const _ of [1, 2]) expect(await connect(tunnel('api.example.com:443'))).toBe(true)
    for (const other of ['api.example.com:8443', 'example.com:443', 'x.api.example.com:443'])
      expect(await connect(tunnel(other))).toBe('no rule allows it')
    expect(await connect(get('http://api.example.com/'))).toBe('no rule allows it')
    expect(await answers.decide(request(url))).toMatchObject({
      decision: 'allow',
      hint: expect.stringMatching(/^already/),
    })
    expect(approvals.pending).toEqual([])
  })

  it('applies for the run until the answer is revoked, also when another agent was given it again [G.03, S1.11, R.12]', async () => {
    for (const decision of ['allow', 'deny'] as const) {
      const first = await open({ otherwise: 'ask' })
      const target = first.tunnel('api.example.com:443')
      const connected = first.connect(target)
      const [id = ''] = await first.waiting()
      expect(await first.approvals.revoke(id, 'ann')).toBe(false)
      first.approvals.answer(id, { decision, scope: 'run', reach: 'suffix' })
      const allowed = decision === 'allow' ? true : 'the user denied api.example.com for this run'
      expect(await connected).toBe(decision === 'allow' ? true : 'the user denied it')
      expect(await first.connect(target)).toBe(allowed)
      const next = await open({ otherwise: 'ask' })
      const past = new Past(null)
      const elsewhere = new Past(null, Number.POSITIVE_INFINITY)
      for (const event of first.events) past.next({ event })
      for (const [index, event] of first.events.entries()) elsewhere.next({ event, seq: index + 1 })
      expect([elsewhere.decided, elsewhere.runAnswers]).toEqual([[], []])
      next.approvals.restore('run-1', past)
      expect(await next.connect(target)).toBe(allowed)
      const below = await next.connect(next.tunnel('below.api.example.com:443'))
      expect(below).toEqual(decision === 'allow' ? true : expect.stringContaining('the user denied'))
      for (const { approvals, connect, waiting } of [first, next]) {
        expect(await approvals.revoke(id, 'ann')).toBe(true)
        expect(await approvals.revoke(id, 'ann')).toBe(false)
        const again = connect(target)
        approvals.answer((await waiting())[0] ?? '', { decision: 'deny', scope: 'once', hint: 'no more' })
        expect(await again).toBe('no more')
      }
      expect(first.events.filter(({ type }) => type === 'approval-revoke')).toEqual([
        { type: 'approval-revoke', approvalId: id, by: 'ann' },
      ])
      const after = new Past(null)
      const revoked = first.events.findIndex(({ type }) => type === 'approval-revoke')
      for (const event of first.events.slice(0, revoked + 1)) after.next({ event })
      expect([after.decided, after.runAnswers]).toEqual([[], []])
    }
  })

  it('cannot be revoked before it is journaled, and applies no more once it is', async () => {
    const { approvals, tunnel, connect, waiting, events } = await open({ otherwise: 'ask' })
    const connected = connect(tunnel('api.example.com:443'))
    const [id = ''] = await waiting()
    approvals.answer(id, { decision: 'allow', scope: 'run' })
    expect(await approvals.revoke(id, 'ann')).toBe(true)
    expect(events.map(({ type }) => type).slice(0, 3)).toEqual([
      'approval-request',
      'approval-decision',
      'approval-revoke',
    ])
    const again = (await waiting())[0] ?? ''
    approvals.answer(again, { decision: 'deny', scope: 'once', hint: 'no' })
    expect(await connected).toBe('no')
  })

  it('lets one connection out after a yes for once', async () => {
    const { answers, approvals, request, tunnel, connect, waiting } = await open()
    const answer = answers.decide(request(url))
    approvals.answer((await waiting())[0] ?? '', { decision: 'allow', scope: 'once', reach: 'suffix' })
    await answer
    const both = await Promise.all([
      connect(tunnel('a.api.example.com:443')),
      connect(tunnel('api.example.com:443')),
    ])
    expect(both.filter((outcome) => outcome === true)).toHaveLength(1)
  })

  it('lets no tunnel out after a yes for a path, where no path can be seen [G.02]', async () => {
    const { answers, approvals, request, tunnel, connect, waiting } = await open()
    const answer = answers.decide(request(url))
    approvals.answer((await waiting())[0] ?? '', { decision: 'allow', scope: 'run', reach: 'path' })
    await answer
    expect(await connect(get('https://api.example.com/v1/rates?day=2'))).toBe(true)
    expect(await connect(get('https://api.example.com/v1/rates/2'))).toBe(true)
    expect(await connect(get('https://api.example.com/v1/ratesecret'))).toBe('no rule allows it')
    expect(await connect(tunnel('api.example.com:443'))).toBe('no rule allows it')
  })

  it('asks nobody about what a rule denies or what lies inside, and takes no answer that the question does not offer [G.02, G.03]', async () => {
    const { answers, approvals, request, waiting, decisions } = await open({
      egress: [{ effect: 'deny', host: '*.example.com', reason: 'not ours' }],
      mode: 'all',
    })
    for (const address of [url, 'http://169.254.169.254/latest/', 'https://127.0.0.1/', 'https://localhost/'])
      expect(await answers.decide(request(address))).toMatchObject({ decision: 'deny' })
    expect(decisions().map(({ by }) => by)).toEqual(['rule', 'rule', 'rule', 'rule'])
    expect(decisions()[0]?.rule).toContain('deny *.example.com')
    void answers.decide(request('https://1.2.3.4/'))
    const [id = ''] = await waiting()
    expect(approvals.answer(id, { decision: 'allow', scope: 'run', reach: 'suffix' })).toMatchObject({
      taken: false,
      reason: 'not_offered',
    })
    expect(approvals.answer(id, { decision: 'allow', scope: 'run', reach: 'host' })).toMatchObject({
      taken: true,
    })
  })

  it('can be about tunnels where requests are let out already; the path alone is not offered then [G.02]', async () => {
    const { answers, approvals, request, tunnel, connect, waiting, questions } = await open({
      egress: [{ effect: 'allow', host: 'api.example.com', path: '/v1/*' }],
    })
    const answer = answers.decide(request(url))
    approvals.answer((await waiting())[0] ?? '', { decision: 'allow', scope: 'run' })
    await answer
    expect(questions()[0]?.access).toMatchObject({
      because: expect.stringMatching(/^for requests alone there is: allow api\.example\.com/),
      offers: [{ reach: 'host' }, { reach: 'suffix' }],
    })
    expect(await connect(tunnel('api.example.com:443'))).toBe(true)
  })

  it('refuses what is no address', async () => {
    const { answers, request } = await open()
    for (const address of [
      'file:///etc/passwd',
      'https://user:pw@example.com/',
      'example.com',
      'https://a b/',
    ])
      expect(await answers.decide(request(address))).toMatchObject({ decision: 'deny' })
  })

  it('has an ID that the host draws: an answer to what the agent asked under its own allows nothing else [G.02, G.03]', async () => {
    const { answers, request, approvals, waiting, questions, connect, tunnel } = await open()
    const first = request(url)
    const answer = answers.decide(first)
    const [id = ''] = await waiting()
    const lie = { ...first, arguments: JSON.stringify({ reason: 'x', url: 'https://evil.example.net/' }) }
    const lied = answers.decide(lie)
    const [, other = ''] = await waiting(2)
    expect(new Set([id, other, first.approvalId]).size).toBe(3)
    expect(questions().map(({ access }) => access?.address)).toEqual([url, 'https://evil.example.net/'])
    approvals.answer(id, { decision: 'allow', scope: 'once' })
    expect(await answer).toMatchObject({ decision: 'allow' })
    approvals.answer(other, { decision: 'deny', scope: 'once' })
    expect(await lied).toMatchObject({ decision: 'deny' })
    expect(await connect(tunnel('evil.example.net:443'))).toBe('no rule allows it')
  })

  it('is not answered under the ID of a question about a file that the agent withdrew [G.02, G.03]', async () => {
    const { answers, request, approvals, waiting, connect, tunnel } = await open()
    const access = request('https://evil.example.net/')
    const file = { ...access, tool: 'delete_file', arguments: JSON.stringify({ path: 'tmp.txt' }) }
    const lost = new AbortController()
    const first = approvals.ask(file, lost.signal)
    expect(await waiting()).toEqual([file.approvalId])
    lost.abort('the agent that asked is gone')
    await first
    const asked = answers.decide(access)
    const [drawn = ''] = await waiting()
    expect(approvals.answer(file.approvalId, { decision: 'allow', scope: 'once' })).toMatchObject({
      taken: false,
    })
    expect(await connect(tunnel('evil.example.net:443'))).toBe('no rule allows it')
    approvals.answer(drawn, { decision: 'deny', scope: 'once' })
    expect(await asked).toMatchObject({ decision: 'deny' })
  })

  it('is denied where nobody is there, with what would allow it; the mode all is no yes to this [S1.11]', async () => {
    const { answers, request, decisions } = await open({ interactive: false, mode: 'all' })
    expect((await answers.decide(request(url))).decision).toBe('deny')
    expect((await answers.decide(request('http://api.example.com:8080/'))).decision).toBe('deny')
    expect(decisions()[0]?.rule).toContain('a rule for api.example.com (option egress.rules)')
    expect(decisions()[1]?.rule).toContain(
      '{ effect = "allow", host = "api.example.com", schemes = ["http"], ports = [8080] }',
    )
  })

  it('follows rules that name the tool, by host or by whole address; a rule for every tool is no yes to this', async () => {
    const rules: ApprovalRule[] = [
      { effect: 'allow', tool: '*' },
      { effect: 'allow', tool: 'request_access', pattern: '*.example.com' },
      { effect: 'allow', tool: 'request_access', argument: 'url', pattern: 'https://docs.example.net/v2/*' },
      { effect: 'deny', tool: 'request_access', pattern: 'bad.*', reason: 'no' },
    ]
    const { answers, request, tunnel, connect } = await open({ rules, interactive: false })
    expect(await answers.decide(request(url))).toMatchObject({ decision: 'allow' })
    expect(await connect(tunnel('api.example.com:443'))).toBe(true)
    expect(await answers.decide(request('https://evil.net/x.example.com'))).toMatchObject({
      decision: 'deny',
    })
    expect(await answers.decide(request('https://bad.example.com/'))).toEqual({
      decision: 'deny',
      hint: 'no',
    })
    expect(await answers.decide(request('https://docs.example.net/v2/a'))).toMatchObject({
      decision: 'allow',
    })
    expect(await connect(get('https://docs.example.net/v2/a/b'))).toBe(true)
    expect(await connect(tunnel('docs.example.net:443'))).toBe('no rule allows it')
  })

  it('is not asked again in a run after a no for the run', async () => {
    const { answers, approvals, request, waiting, decisions } = await open()
    const answer = answers.decide(request(url))
    approvals.answer((await waiting())[0] ?? '', { decision: 'deny', scope: 'run' })
    await answer
    expect((await answers.decide(request('https://api.example.com/other'))).decision).toBe('deny')
    expect(decisions()[1]).toMatchObject({
      by: 'rule',
      rule: 'the user denied api.example.com for this run',
    })
  })
})

describe('a connection that a rule asks about', () => {
  it('waits for the answer; attempts for one place share a question [G.02, S1.11]', async () => {
    const { approvals, tunnel, connect, waiting, questions } = await open({ otherwise: 'ask' })
    const target = tunnel('files.example.com:443')
    const attempts = [connect(target), connect(target), connect(target)]
    const other = connect(tunnel('other.example.com:443'))
    const [id = '', otherId = ''] = await waiting(2)
    expect(questions()[0]).toMatchObject({
      kind: 'enforced',
      access: {
        from: 'connection',
        address: 'https://files.example.com/',
        offers: [{ reach: 'host' }, { reach: 'suffix' }],
      },
    })
    approvals.answer(id, { decision: 'allow', scope: 'run' })
    expect(await Promise.all(attempts)).toEqual([true, true, true])
    approvals.answer(otherId, { decision: 'deny', scope: 'once', hint: 'not that' })
    expect(await other).toBe('not that')
    expect(await connect(tunnel('other.example.com:443'))).toContain('not that')
    expect(questions()).toHaveLength(2)
  })

  it('is one that the agent does not know of, unlike its own question: its clock is to stand still too [S1.11]', async () => {
    const waits: [number, boolean][] = []
    const onWaiting = (change: number, isUnseen: boolean) => waits.push([change, isUnseen])
    const { answers, approvals, request, tunnel, connect, waiting } = await open({
      otherwise: 'ask',
      onWaiting,
    })
    void connect(tunnel('files.example.com:443'))
    await waiting()
    void answers.decide(request(url))
    await waiting(2)
    approvals.close()
    expect(waits).toEqual([
      [1, true],
      [1, false],
      [-1, true],
      [-1, false],
    ])
  })

  it('uses up a yes for once: the attempts beside it are asked about again', async () => {
    const { approvals, tunnel, connect, waiting } = await open({ otherwise: 'ask' })
    const target = tunnel('files.example.com:443')
    const attempts = [connect(target), connect(target)]
    const [first = ''] = await waiting()
    approvals.answer(first, { decision: 'allow', scope: 'once' })
    await expect.poll(() => approvals.pending.filter((id) => id !== first)).toHaveLength(1)
    const [second = ''] = approvals.pending
    approvals.answer(second, { decision: 'deny', scope: 'once' })
    expect((await Promise.all(attempts)).filter((outcome) => outcome === true)).toHaveLength(1)
  })

  it('is answered by an answer to another question that covers it', async () => {
    const { answers, approvals, request, tunnel, connect, waiting } = await open({ otherwise: 'ask' })
    const connecting = connect(tunnel('cdn.example.com:443'))
    await waiting()
    const asked = answers.decide(request('https://example.com/'))
    const [, id = ''] = await waiting(2)
    approvals.answer(id, { decision: 'allow', scope: 'run', reach: 'suffix' })
    expect(await connecting).toBe(true)
    await asked
    expect(approvals.pending).toEqual([])
  })

  it('stays open for a while when the program gives up, for it often tries again; then it is withdrawn', async () => {
    const { approvals, tunnel, connect, waiting, decisions } = await open({ otherwise: 'ask', lingerMs: 200 })
    const target = tunnel('slow.example.com:443')
    const giving = new AbortController()
    const attempt = connect(target, giving.signal)
    const before = await waiting()
    giving.abort()
    expect(await attempt).toContain('has gone')
    const again = new AbortController()
    const second = connect(target, again.signal)
    expect(approvals.pending).toEqual(before)
    again.abort()
    await second
    await expect
      .poll(() => decisions())
      .toMatchObject([{ by: 'agent', rule: 'the program that asked has given up' }])
    expect(approvals.pending).toEqual([])
  })

  it('of the agent itself is refused once it has asked too often [G.03]', async () => {
    const { answers, request } = await open({ interactive: false })
    for (let at = 0; at < 256; at++) await answers.decide(request(url))
    expect(await answers.decide(request(url))).toMatchObject({
      decision: 'deny',
      hint: expect.stringContaining('this run asked 256'),
    })
  })

  it('is refused without a question once too many wait, or were asked in the run', async () => {
    const { approvals, tunnel, connect, waiting, questions } = await open({ otherwise: 'ask' })
    for (let at = 0; at < 32; at++) void connect(tunnel(`h${at}.example.com:443`))
    await waiting(32)
    expect(await connect(tunnel('one-more.example.com:443'))).toContain('wait already')
    approvals.detach()
    await expect.poll(() => approvals.pending).toEqual([])
    for (let at = 32; at < 300; at++) await connect(tunnel(`h${at}.example.com:443`))
    expect(questions()).toHaveLength(256)
    expect(await connect(tunnel('last.example.com:443'))).toContain('this run asked 256')
  })

  it('is denied once the run is ending', async () => {
    const { approvals, tunnel, connect, waiting } = await open({ otherwise: 'ask' })
    const attempt = connect(tunnel('files.example.com:443'))
    await waiting()
    approvals.close()
    expect(await attempt).toContain('the run is ending')
  })
})
