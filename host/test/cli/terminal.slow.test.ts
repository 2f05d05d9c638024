import { readdir } from 'node:fs/promises'
import { setTimeout as sleep } from 'node:timers/promises'
import { describe, expect, it } from 'vitest'
import { cliPlace, runArguments } from '../support/cli.ts'
import { readFiles } from '../support/runs.ts'

const up = '\u001b[A'
const ctrlC = '\u0003'
const color = /\[3\dm/

/** The ends in a journal; there must be one. */
const runEnds = (events: { event: { type: string } }[]) =>
  events.filter(({ event }) => event.type === 'run-end')

describe('caisson run in a terminal', () => {
  it('asks before a deletion, shows the claim and its preview, and a no ends the run as denied [S1.11 H.01]', async () => {
    const place = await cliPlace({ 'old.txt': 'old\n' })
    const cli = place.startInTerminal(...runArguments(place, 'Delete old.txt'))
    // Keys pressed before the question do not answer it.
    await cli.sees('VM ready')
    cli.type(`${up}${up}\r`)
    await cli.sees(/Allow it\?[\s\S]*Type 1-4, y, n/)
    expect(cli.output()).toContain('the agent asks to call delete_file')
    expect(cli.output()).toMatch(/│ path: old\.txt/)
    expect(cli.output()).toMatch(/┆ .*old\.txt/)
    // Enter alone is no answer.
    cli.type('\r')
    await cli.sees('Type 1-4, y, n')
    cli.type('n\r')
    const { code, stdout } = await cli.ended
    expect(stdout).toMatch(/Denied\S* by you/)
    expect(stdout).toMatch(color)
    expect(code).toBe(3)
    expect(await readFiles(place.workspace)).toEqual({ 'old.txt': 'old\n' })
  })

  it('keeps what was typed as a message when a question appears, and takes none of it for an answer [S1.11 A.08 H.01]', async () => {
    const place = await cliPlace({ 'old.txt': 'old\n' })
    const cli = place.startInTerminal(...runArguments(place, 'Run the command `sleep 3`. Delete old.txt'))
    await cli.sees('run_bash')
    cli.type('please skip the t')
    await cli.sees('asked by root')
    cli.type('ests\r1\ry\r')
    await cli.sees('kept as your next message to the agent: “please skip the tests')
    expect(cli.output()).not.toContain('Allowed')
    cli.type('n\r')
    const { code } = await cli.ended
    expect(code).toBe(3)
    expect(await readFiles(place.workspace)).toEqual({ 'old.txt': 'old\n' })
  })

  it('sends nothing that is typed at a quiet run, and still takes the answer to a question [S1.11 A.08 H.01]', async () => {
    const place = await cliPlace({ 'old.txt': 'old\n' })
    const task = 'Run the command `sleep 4`. Delete old.txt'
    const cli = place.startInTerminal(...runArguments(place, task, '--quiet'))
    const events = () => place.journal().catch(() => [])
    await expect
      .poll(async () => (await events()).some(({ event }) => event.type === 'tool-start'), {
        timeout: 60_000,
      })
      .toBe(true)
    cli.type('please skip the tests\r')
    await sleep(1_500)
    cli.type('\r')
    await cli.sees('Allow it?')
    expect(cli.output()).not.toMatch(/skip the tests|What should the agent know|next message/)
    await sleep(1_500)
    cli.type('n\r')
    const { code, stdout } = await cli.ended
    expect(code).toBe(3)
    expect(stdout).not.toContain('Not sent')
    expect((await events()).map(({ event }) => event.type)).not.toContain('steer-request')
    expect(await readFiles(place.workspace)).toEqual({ 'old.txt': 'old\n' })
  })

  it('puts a question of the agent, which no key typed ahead answers, and continues with the answer; no key stands in the status line [S2.16 H.01]', async () => {
    const place = await cliPlace({ 'a.txt': 'a\n' })
    const task = 'Ask me "Which format?" with the options "csv" and "json"'
    const cli = place.startInTerminal(...runArguments(place, task))
    await cli.sees('preparing')
    cli.type('zzz')
    await cli.sees('VM ready')
    cli.type('\u0015')
    await cli.sees('A number from 1 to 2')
    await sleep(300)
    expect(cli.output()).toContain('Question: the agent asks you')
    expect(cli.output()).toMatch(/ 2 │ json/)
    expect(cli.output()).not.toContain('Answered')
    cli.type('3\r')
    await cli.sees('3 is not a valid answer')
    // It is asked again once nothing more is typed.
    await cli.sees('A number from 1 to 2')
    cli.type('2\r')
    const { code, stdout } = await cli.ended
    expect(stdout).toMatch(/Answered\S* by you: json/)
    expect(stdout).toContain('The answer: json')
    expect(code).toBe(0)
    expect(stdout.replaceAll('“zzz”', '')).not.toContain('zzz')
  })

  it('applies all after a yes, without colors where NO_COLOR is set [S1.11 W.01 H.01]', async () => {
    const place = await cliPlace({ 'old.txt': 'old\n' }, { NO_COLOR: '1' })
    const cli = place.startInTerminal(...runArguments(place, 'Delete old.txt'))
    await cli.sees('Allow it?')
    cli.type('1\r')
    await cli.sees('Apply the changes')
    cli.type('y\r')
    const { code, stdout } = await cli.ended
    expect(stdout).toMatch(/Allowed by you/)
    expect(stdout).toContain('Applied 1 change.')
    expect(stdout).not.toMatch(color)
    expect(code).toBe(0)
    expect(await readFiles(place.workspace)).toEqual({})
  })

  it('asks once when the answer is for every such call in the run [S1.11]', async () => {
    const place = await cliPlace({ 'a.txt': 'a\n', 'b.txt': 'b\n', 'c.txt': 'c\n' })
    const cli = place.startInTerminal(...runArguments(place, 'Delete a.txt, delete b.txt and delete c.txt'))
    await cli.sees('Allow it?')
    expect(cli.output()).toContain('yes, every delete_file in this run')
    cli.type('2\r')
    await cli.sees('Apply the changes')
    cli.type('y\r')
    const { code, stdout } = await cli.ended
    expect(stdout.match(/Approval: the agent asks/g)).toHaveLength(1)
    expect(stdout.match(/Allowed\S* by you for this run/g)).toHaveLength(3)
    expect(code).toBe(0)
    expect(await readFiles(place.workspace)).toEqual({})
    const decisions = (await place.journal()).flatMap(({ event }) =>
      event.type === 'approval-decision' ? [event] : [],
    )
    expect(decisions).toHaveLength(3)
    for (const decision of decisions) expect(decision).toMatchObject({ by: 'person', scope: 'run' })
  })

  it('asks nothing with --approve none: what asks is denied, what does not need it is done [S1.11]', async () => {
    const place = await cliPlace({ 'old.txt': 'old\n' })
    const task = 'Delete old.txt and create new.txt with the text hello'
    const cli = place.startInTerminal(...runArguments(place, task, '--approve', 'none'))
    await cli.sees('Apply the changes')
    cli.type('y\r')
    const { code, stdout } = await cli.ended
    expect(stdout).not.toContain('Allow it?')
    expect(stdout).toMatch(/Denied\S* by the approval mode: --approve none/)
    expect(stdout).toContain('1 of 2 steps completed')
    expect(code).toBe(3)
    expect(await readFiles(place.workspace)).toEqual({ 'new.txt': 'hello', 'old.txt': 'old\n' })
  })

  it('takes a question back that the agent withdraws, and says why [S1.11]', async () => {
    const place = await cliPlace({ 'old.txt': 'old\n' })
    const cli = place.startInTerminal(...runArguments(place, 'Delete old.txt and show missing.txt'))
    const { code, stdout } = await cli.ended
    expect(stdout).toContain('Approval: the agent asks to call delete_file')
    expect(stdout).toContain('Question withdrawn by the agent: the step that asked has ended')
    expect(stdout).toContain('Run failed')
    expect(code).toBe(1)
    expect(await readFiles(place.workspace)).toEqual({ 'old.txt': 'old\n' })
    const events = await place.journal()
    expect(events).toContainEqual(
      expect.objectContaining({ event: expect.objectContaining({ type: 'approval-decision', by: 'agent' }) }),
    )
  })

  it('applies the files that a person chooses, flagged ones only when chosen, and exits with 0 [W.01 W.03]', async () => {
    const place = await cliPlace({})
    const command = 'echo a > a.txt; echo b > b.txt; echo "all:" > Makefile'
    const cli = place.startInTerminal(...runArguments(place, `Run the command \`${command}\``))
    await cli.sees('Apply the changes')
    expect(cli.output()).toContain('all but 1 that is flagged')
    cli.type('2\r')
    await cli.sees('Type numbers such as')
    expect(cli.output()).toMatch(/1 · Makefile \(flagged: /)
    // Makefile (flagged), a.txt, b.txt.
    cli.type('2\r')
    const { code, stdout } = await cli.ended
    expect(stdout).toContain('Applied 1 change.')
    expect(code).toBe(0)
    expect(await readFiles(place.workspace)).toEqual({ 'a.txt': 'a\n' })
  })

  it('cancels at Ctrl-C in a question, in a terminal without a size too: exit code 3, one end, no VM left [S1.03 V.06]', async () => {
    const place = await cliPlace({ 'old.txt': 'old\n' })
    const cli = place.startInSizelessTerminal(...runArguments(place, 'Delete old.txt'))
    await cli.sees('Allow it?')
    cli.type(ctrlC)
    const { code, stdout } = await cli.ended
    expect(stdout).toContain('Run cancelled')
    expect(code).toBe(3)
    expect(runEnds(await place.journal())).toHaveLength(1)
    expect(await place.leftovers()).toEqual([])
  })

  it('cancels at Ctrl-C during work and keeps what was done for later; again it ends at once [S1.03 V.06]', async () => {
    const place = await cliPlace({})
    // What it prints stands in the status line, in other letters than in the command.
    const task = 'Run the command `echo done > done.txt; echo wr""itten; sleep 300`'
    const once = place.startInTerminal(...runArguments(place, task))
    await once.sees('written')
    once.type(ctrlC)
    const cancelled = await once.ended
    expect(cancelled.stdout).toContain('Nothing was applied')
    expect(cancelled.code).toBe(3)
    expect(await readdir(place.workspace)).toEqual([])
    expect(runEnds(await place.journal())).toHaveLength(1)

    const twice = place.startInTerminal(...runArguments(place, task))
    await twice.sees('run_bash')
    twice.type(ctrlC)
    await twice.sees('Cancelling')
    twice.type(ctrlC)
    expect((await twice.ended).code).toBe(3)
    const events = await place.journal()
    expect(runEnds(events)).toMatchObject([{ event: { outcome: 'cancelled', reason: 'cancelled' } }])
    expect(await place.leftovers()).toEqual([])
  })
})
