/** A service of a fleet in the place of a real one, with one run. */
import type { IncomingMessage } from 'node:http'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { Host } from '../../../host.ts'
import { prepareFolders } from '../../../state/folders.ts'
import { commandsIn } from '../../support/run-command.ts'
import { runId } from '../../support/run-values.ts'
import { resource, standIn, version } from './stand-in.ts'

type Reply = readonly [number, unknown] | undefined

/** A status and its JSON; `silent` answers nothing. Undefined: what is usual. */
export type Answer = (method: string, path: string, query: URLSearchParams) => Reply | 'silent'

/** A state folder with a service of a fleet, and the command line beside it. */
export async function besideFleet(reply: Answer) {
  const home = await temporaryFolder('beside-fleet')
  const env = { HOME: home, CAISSON_HOME: home, PATH: process.env.PATH }
  await prepareFolders(new Host({ env }).folders)
  return { ...(await fleetAt(home, reply)), env, caisson: commandsIn(env) }
}

/** A service of a fleet that has one run, which is at work. */
export async function fleetAt(home: string, reply: Answer, id = runId) {
  const usual = (path: string): readonly [number, unknown] => {
    if (path === `/v1/runs/${id}`) return [200, { ...resource, id, host: null }]
    if (path === '/v1/approvals') return [200, { approvals: [], hasMore: false }]
    if (path.endsWith('/events')) return [200, { events: [], next: 1, isLast: false }]
    return [404, refusal(404, 'run_not_found', 'there is nothing')]
  }
  return await standIn(home, {
    says: { status: 'running', version, isOfFleet: true },
    started: ({ method = '', url = '', headers }: IncomingMessage, response) => {
      if (headers.accept === 'text/event-stream')
        return response.writeHead(200, { 'content-type': headers.accept }).flushHeaders()
      const { pathname, searchParams } = new URL(url, 'http://localhost')
      const given = reply(method, pathname, searchParams)
      if (given === 'silent') return
      const [status, body] = given ?? usual(pathname)
      response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body))
    },
  })
}

/** A problem as the service says it. */
export function refusal(status: number, code: string, detail: string) {
  return { type: 'about:blank', title: 't', status, code, detail }
}
