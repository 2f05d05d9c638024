import { setTimeout as sleep } from 'node:timers/promises'
import { describe, expect, it } from 'vitest'
import { z } from 'zod'
import { Delta, HostDelta, JournalEvent } from '#specs/protocol/event.ts'
import { cliPlace, runArguments } from '../support/cli.ts'
import { readFiles } from '../support/runs.ts'

const FeedLine = z.union([
  JournalEvent,
  z.strictObject({
    source: z.literal('delta'),
    runId: z.string(),
    agentPath: z.string(),
    delta: z.union([Delta, HostDelta]),
  }),
])
const Summary = z.looseObject({ source: z.literal('summary'), changes: z.number(), apply: z.unknown() })

/** Every line but the summary, which comes last if at all, is an event or a delta. */
function parse(stdout: string) {
  expect(stdout.endsWith('\n')).toBe(true)
  const values = stdout
    .slice(0, -1)
    .split('\n')
    .map((line): unknown => JSON.parse(line))
  const summary = Summary.safeParse(values.at(-1))
  const lines = (summary.success ? values.slice(0, -1) : values).map((value) => FeedLine.parse(value))
  return { lines, summary: summary.data }
}

const approvalId = (output: string) => /"approvalId":"([^"]+)"/.exec(output)?.[1]

describe('caisson run --json', () => {
  it('takes a denial with a hint on stdin, reports lines that are no decisions, and exits with 3 [S1.11 H.01]', async () => {
    const place = await cliPlace({ 'old.txt': 'old\n' })
    const cli = place.start(...runArguments(place, 'Delete old.txt', '--json'))
    await cli.sees('"approval-request"')
    const id = approvalId(cli.output())
    const broken = ['not json', '{"approvalId":7}', '[[[', '{"cancel":false}', '']
    cli.type(`${broken.join('\n')}\n{"approvalId":"another","decision":"allow"}\n`)
    cli.type(`${JSON.stringify({ approvalId: id, decision: 'deny', hint: 'keep it' })}\n`)
    const { code, stdout, stderr } = await cli.ended
    const { lines } = parse(stdout)
    const decisions = lines.flatMap((line) =>
      line.source === 'host' && line.event.type === 'approval-decision' ? [line.event] : [],
    )
    expect(decisions).toMatchObject([{ decision: 'deny', by: 'person', hint: 'keep it' }])
    for (const number of [1, 2, 3, 4]) expect(stderr).toContain(`line ${number} of standard input`)
    expect(stderr).toContain('no approval of this run has the ID "another"')
    expect(stderr).toContain('offline model')
    expect(code).toBe(3)
  })

  it('takes an approval, applies with --apply, and ends with a summary [S1.11 W.01 H.01 S0.10]', async () => {
    const place = await cliPlace({ 'old.txt': 'old\n' })
    const cli = place.start(...runArguments(place, 'Delete old.txt', '--json', '--apply'))
    await cli.sees('"approval-request"')
    cli.type(`${JSON.stringify({ approvalId: approvalId(cli.output()), decision: 'allow' })}\n`)
    const { code, stdout } = await cli.ended
    const { summary } = parse(stdout)
    expect(summary).toMatchObject({ changes: 1, apply: { applied: ['old.txt'] } })
    expect(code).toBe(0)
    expect(await readFiles(place.workspace)).toEqual({})
  })

  it('denies what asks once standard input has ended [S1.11]', async () => {
    const place = await cliPlace({ 'old.txt': 'old\n' })
    const cli = place.start(...runArguments(place, 'Delete old.txt', '--json', '--apply'))
    await cli.sees('"approval-request"')
    await sleep(100)
    cli.child.stdin?.end()
    const { code, stdout } = await cli.ended
    expect(stdout).toContain('option approvals.mode: all')
    expect(code).toBe(3)
    expect(await readFiles(place.workspace)).toEqual({ 'old.txt': 'old\n' })
  })

  it('cancels the run when nobody reads its output any more [S1.03 V.06]', async () => {
    const place = await cliPlace({})
    const cli = place.start(...runArguments(place, 'Run the command `sleep 300`', '--json'))
    await cli.sees('"vm-ready"')
    cli.child.stdout?.destroy()
    const { code } = await cli.ended
    expect(code).toBe(3)
    expect((await place.journal()).at(-1)).toMatchObject({ event: { type: 'run-end', outcome: 'cancelled' } })
    expect(await place.leftovers()).toEqual([])
  })
})
