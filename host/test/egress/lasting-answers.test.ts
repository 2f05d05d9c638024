// Answers that outlive their run: kept in a file, held in every run, revoked.
import { readFileSync, statSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { PersistentGrants } from '../../egress/persistent-grants.ts'
import { openApprovals as open, runId, url } from './access-support.ts'

describe('an answer for always', () => {
  it('holds in later runs and in those at work, until it is revoked [S1.11]', async () => {
    const first = await open()
    const other = await open({ folder: first.folder })
    const answer = first.answers.decide(first.request(url))
    first.approvals.answer((await first.waiting())[0] ?? '', { decision: 'allow', scope: 'always' })
    await answer
    const target = first.tunnel('api.example.com:443')
    expect(await other.connect(target)).toBe(true)
    const [grant] = first.lasting.list()
    expect(grant).toMatchObject({ id: 1, runId, rule: { effect: 'allow', host: 'api.example.com' } })
    expect(statSync(first.lasting.file).mode & 0o777).toBe(0o600)
    expect(await other.lasting.revoke(1)).toEqual(grant)
    expect(await other.lasting.revoke(1)).toBeNull()
    expect(await first.connect(target)).toBe('no rule allows it')
    await first.lasting.add([{ effect: 'allow', host: 'b.example' }], runId)
    expect(first.lasting.list().map(({ id }) => id)).toEqual([2])
  })

  it('does not hold, and nobody is asked, while the file cannot be read; nothing is written over it', async () => {
    const { answers, lasting, request, tunnel, connect } = await open({ otherwise: 'ask' })
    await lasting.add([{ effect: 'allow', host: 'api.example.com' }], runId)
    const file = lasting.file
    writeFileSync(file, readFileSync(file, 'utf8').replace('allow', 'alow'))
    expect(await connect(tunnel('api.example.com:443'))).toContain('egress-grants.json')
    expect((await answers.decide(request(url))).hint).toContain('correct the file or remove it')
    await expect(lasting.add([], runId)).rejects.toThrow('cannot read')
    expect(readFileSync(file, 'utf8')).toContain('alow')
  })

  it('holds for its run alone, and says so, where it cannot be kept', async () => {
    const folder = path.join(await temporaryFolder(), 'not-there')
    const { answers, approvals, request, tunnel, connect, waiting } = await open({ folder })
    const answer = answers.decide(request(url))
    approvals.answer((await waiting())[0] ?? '', { decision: 'allow', scope: 'always' })
    expect((await answer).hint).toContain('it holds for this run alone: cannot change')
    expect(await connect(tunnel('api.example.com:443'))).toBe(true)
  })

  it('keeps no rule twice, and all that several processes add at once', async () => {
    const { lasting, folder } = await open()
    const all = Array.from({ length: 8 }, (_, at) =>
      new PersistentGrants({ home: folder, locks: folder }).add(
        [{ effect: 'allow', host: `h${at % 4}.example` }],
        runId,
      ),
    )
    await Promise.all(all)
    expect(
      lasting
        .list()
        .map(({ rule }) => rule.host)
        .sort(),
    ).toEqual(['h0.example', 'h1.example', 'h2.example', 'h3.example'])
    expect(path.dirname(lasting.file)).toBe(folder)
  })
})
