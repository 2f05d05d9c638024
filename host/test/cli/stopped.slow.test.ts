// A host process that is stopped for so long that its guest asks for a session again and again, as at Ctrl-Z.
import { fork } from 'node:child_process'
import { once } from 'node:events'
import { readdir } from 'node:fs/promises'
import { createServer, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { describe, expect, it, onTestFinished } from 'vitest'
import { defaultTimings } from '../../guest/sessions.ts'
import { cliPlace, runArguments } from '../support/cli.ts'
import { readFiles } from '../support/runs.ts'
import { findQemu } from '../support/vm-processes.ts'

/** Silence after which the guest ends its session, and asks for another one once a second. */
const guestSilenceMs = 60_000
/** From here the host finds more requests of the guest than sessions that may end in a minute. */
const manyRequestsMs = guestSilenceMs + (defaultTimings.flapMaxCount + 1) * 1_000

describe('limits of a host process that is stopped for longer than they are', () => {
  it('do not count that time: what was in time still is [C.03 R.02]', async () => {
    const limitMs = 3_000
    const pending: ServerResponse[] = []
    const server = createServer((_, response) => {
      response.write('one ')
      pending.push(response)
    })
    await once(server.listen(0, '127.0.0.1'), 'listening')
    onTestFinished(() => void server.close())
    const { port } = server.address() as AddressInfo
    const program = fileURLToPath(new URL('../support/stopped-timers.ts', import.meta.url))
    const child = fork(program, [String(port), String(limitMs)], {
      execArgv: ['--conditions=caisson-source'],
    })
    onTestFinished(() => void child.kill('SIGKILL'))
    await once(child, 'message')
    child.kill('SIGSTOP')
    for (const response of pending) response.end('two')
    await sleep(2 * limitMs)
    const said = once(child, 'message')
    child.kill('SIGCONT')
    child.send('continue')
    const [waits] = await said
    expect(waits).toEqual({
      start: 'started',
      pool: 'served',
      hook: 'ended',
      model: 'one two',
      turn: 'taken',
    })
  })
})

describe('caisson run whose process is stopped for 100 seconds', () => {
  it('continues with its run in the same VM, and its changes are applied [C.03 R.02 R.05 V.06]', async () => {
    const place = await cliPlace({ 'a.txt': 'a\n' })
    // One call ends while the host is stopped, so that its result and the next request wait.
    const command = 'for i in $(seq 1 20); do echo line-$i; sleep 1; done; echo finished > done.txt'
    const run = place.start(...runArguments(place, `Run the command \`${command}\``, '--apply'))
    await run.sees('run_bash')
    const qemu = await findQemu(place.home)
    const stoppedAt = performance.now()
    run.child.kill('SIGSTOP')
    await sleep(manyRequestsMs + 15_000)
    // Its locks hold: to others it is at work.
    expect((await place.run('runs', 'list')).stdout).toMatch(/ running /)
    expect(await place.run('runs', 'rm', 'last')).toMatchObject({ code: 4 })
    expect(await findQemu(place.home)).toBe(qemu)
    expect(performance.now() - stoppedAt).toBeGreaterThan(manyRequestsMs)
    run.child.kill('SIGCONT')
    const { code, stdout, stderr } = await run.ended
    expect({ code, stderr, stdout }).toMatchObject({ code: 0 })
    expect(await readFiles(place.workspace)).toEqual({ 'a.txt': 'a\n', 'done.txt': 'finished\n' })
    const events = await place.journal()
    const ofType = (type: string) => events.filter(({ event }) => event.type === type)
    expect(ofType('session-start').length).toBeGreaterThanOrEqual(2)
    expect(ofType('run-end')).toMatchObject([{ event: { outcome: 'completed' } }])
    const counts = events.flatMap((event) => (event.source === 'agent' ? [event.n] : []))
    expect(counts).toEqual(counts.map((_, at) => at + 1))
    const output = events.flatMap(({ event }) => (event.type === 'tool-end' ? [event.output] : [])).join('')
    for (let line = 1; line <= 20; line += 1) expect(output.split(`line-${line}\n`).length).toBe(2)
    expect(await place.leftovers()).toEqual([])
    expect(await readdir(`${place.home}/runs`)).toHaveLength(1)
  })
})
