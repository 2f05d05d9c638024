import type { ServerHttp2Stream } from 'node:http2'
import { describe, expect, it } from 'vitest'
import { GuestAccess } from '../../host/control/guest-access.ts'
import { ChangeStream } from '../../host/runs/guest/change-stream.ts'
import { runId } from '../../host/test/support/run-values.ts'
import { createWorld } from '../link/support.ts'

describe('the streams of the agent itself', () => {
  it.each([
    ['gateway', `/changes/${runId}`, true],
    ['gateway', '/shell/1', true],
    ['gateway', '/forward/1', true],
    ['web.test', `/changes/${runId}`, false],
    ['web.test', '/shell/1', false],
    ['gateway:80', '/forward/1', false],
  ])('are known by their name too: %s%s is one: %s [G.02]', async (authority, path, isOwn) => {
    const changes = new ChangeStream(runId)
    const taken: boolean[] = []
    await using world = createWorld({
      onStream: (stream: ServerHttp2Stream, headers) => {
        const access = new GuestAccess({ link: () => world.link })
        taken.push(access.handleStream(stream, headers) || changes.handleStream(stream, headers))
        if (!taken[0]) stream.respond({ ':status': 404 }, { endStream: true })
        stream.resume()
      },
    })
    const guest = world.startGuest()
    await world.link.ready()
    const headers = { ':method': 'POST', ':scheme': 'http', ':authority': authority, ':path': path }
    const stream = await guest.http.openStream(headers)
    stream.end().resume()
    await new Promise((resolve) => stream.once('close', resolve))
    expect(taken).toEqual([isOwn])
  })
})
