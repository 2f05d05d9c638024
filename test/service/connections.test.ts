// Callers that open more connections than the service has file descriptors.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { request } from 'node:http'
import { connect, type Socket } from 'node:net'
import path from 'node:path'
import { text } from 'node:stream/consumers'
import { expect, it, onTestFinished } from 'vitest'
import { cliPlace } from '../../host/test/support/cli.ts'
import { cliProgram } from '../../host/test/support/cli-program.ts'

it.runIf(process.platform === 'linux')(
  'connections of callers without a token leave file descriptors to the owner and the runs [H.02 S4.11]',
  async () => {
    const { home, env } = await cliPlace({})
    const serve = ['--nofile=200:200', process.execPath, '--conditions=caisson-source', cliProgram, 'serve']
    const child = spawn('prlimit', [...serve, '--port', '0'], { env: { ...process.env, ...env } })
    onTestFinished(() => void child.kill('SIGKILL'))
    let said = ''
    for (const stream of [child.stdout, child.stderr]) stream.on('data', (piece) => (said += String(piece)))
    const port = () => /listens on http:\S+:(\d+)/.exec(said)?.[1]
    await expect.poll(port, { timeout: 60_000 }).toBeTruthy()

    const sockets = Array.from({ length: 300 }, () => open(Number(port())))
    onTestFinished(() => {
      for (const socket of sockets) socket.destroy()
    })
    const closed = () => sockets.filter((socket) => socket.closed).length
    await expect.poll(closed, { timeout: 20_000 }).toBeGreaterThanOrEqual(200)
    const asked = request({ socketPath: path.join(home, 'service/service.sock'), path: '/v1/runs' }).end()
    const [response] = await once(asked, 'response')
    expect(JSON.parse(await text(response))).toEqual({ runs: [] })
    expect(said).not.toContain('EMFILE')
  },
  120_000,
)

function open(port: number): Socket {
  return connect(port, '127.0.0.1').on('error', () => undefined)
}
