// Three services of a fleet with state folders of their own, over HTTP, with PostgreSQL and a program in the place of QEMU.
// The first one carries runs out; callers ask the other two, which have none of them.
import { randomUUID } from 'node:crypto'
import { mkdir, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { afterAll, beforeAll, expect, vi } from 'vitest'
import { reply } from '#specs/testing/model-replies.ts'
import {
  type Asked,
  type ModelServer,
  type ServerReply,
  startModelServer,
} from '#specs/testing/model-server.ts'
import { ServiceClient, type ServiceError } from '../../client/index.ts'
import { parseFleetAddress } from '../../host/fleet/address.ts'
import { FleetMember } from '../../host/fleet-member.ts'
import { Host } from '../../host/host.ts'
import { Service } from '../../host/service/service.ts'
import { type InstalledMachine, installMachine } from '../recovery/machine/install.ts'
import { PostgresServer } from '../support/postgres.ts'

export interface Node extends AsyncDisposable {
  readonly host: Host
  readonly client: ServiceClient
  readonly home: string
}

/** Of `expect.poll`, for what a fleet does within some seconds. */
export const waiting = { timeout: 60_000, interval: 100 }

const folder = path.join(tmpdir(), `caisson-nodes-${randomUUID()}`)
/** That all nodes allow. It has the file given.txt. */
export const workspace = path.join(folder, 'workspace')
export const nodes: Node[] = []
let machine: InstalledMachine
let server: PostgresServer
let modelServer: ModelServer
let isReleased = false
/** When everybody who follows the step "tell" has some of its text. */
let isHeard = Promise.withResolvers<void>()

/** Starts the nodes before the tests of a file, and ends them after it. */
export function useThreeNodes(): void {
  beforeAll(async () => {
    await mkdir(workspace, { recursive: true })
    machine = await installMachine(folder)
    // QEMU is looked for in that of the process.
    vi.stubEnv('PATH', `${machine.programs}:${process.env.PATH ?? ''}`)
    server = await PostgresServer.start()
    modelServer = await startModelServer((asked) => answer(asked))
    await writeFile(path.join(workspace, 'given.txt'), 'given\n')
    nodes.push(await openNode('one', 2), await openNode('two', 0), await openNode('three', 0))
  }, 120_000)

  afterAll(async () => {
    vi.unstubAllEnvs()
    for (const each of nodes) await each[Symbol.asyncDispose]()
    await modelServer[Symbol.asyncDispose]()
    await server[Symbol.asyncDispose]()
    await rm(folder, { recursive: true, force: true })
  }, 90_000)
}

/** The model of the runs, whose steps say what it does. */
export const model = {
  /** How often it was asked about a step. */
  asks: (step: string) => modelServer.asked.filter(({ text }) => text.includes(`do ${step}`)).length,
  /** The step "hang" has no answer until `release`. */
  hold() {
    isReleased = false
  },
  release() {
    isReleased = true
  },
  /** The steps "tell" and "write then stop" pause in the middle of their text until `finishTelling`. */
  startTelling() {
    isHeard = Promise.withResolvers()
  },
  finishTelling() {
    isHeard.resolve()
  },
}

export async function restartDatabase(): Promise<void> {
  await server.kill()
  await server.restart()
}

/** Of the step "tell". */
export const words = Array.from({ length: 60 }, (_, at) => `word ${at} 😀 `)

/**
 * "hang" has no answer until it is released; "tell" and "write then stop" have a slow text that stops until all have heard
 * some; "ask" asks the person; others write a file.
 */
function answer({ messages }: Asked): ServerReply {
  const asked = messages.map(({ content }) => content ?? '').join('\n')
  const isBegun = messages.some(({ role }) => role === 'assistant')
  if (/\bdo write then stop\b/.test(asked) && isBegun)
    return { ...reply({ text: 'It is done.' }), beforePiece: () => isHeard.promise }
  if (/\bdo hang\b/.test(asked) && !isReleased) return { before: 'hang', body: '' }
  if (/\bdo tell\b/.test(asked)) {
    const beforePiece = (piece: number) => (piece === 20 ? isHeard.promise : undefined)
    return { ...reply({ text: words }), pieceBytes: 300, pauseMs: 60, beforePiece }
  }
  if (isBegun) return reply({ text: 'It is done.' })
  if (/\bdo ask\b/.test(asked)) {
    const given = {
      question: 'Which format?',
      kind: 'choice',
      options: [{ value: 'csv' }, { value: 'json' }],
    }
    return reply({ calls: [{ id: 'call-1', name: 'ask_user', arguments: JSON.stringify(given) }] })
  }
  const command = 'echo made > made.txt'
  return reply({ calls: [{ id: 'call-1', name: 'run_bash', arguments: JSON.stringify({ command }) }] })
}

const modelEnv = () => ({
  ...{ CAISSON_LLM_URL: modelServer.baseUrl, CAISSON_MODEL: 'scripted', CAISSON_LLM_KEY: 'sk-some-key' },
})

/** Of a command line beside a node. */
export const envAt = (at: number) => ({
  ...{ CAISSON_HOME: node(at).home, CAISSON_CACHE: machine.cache, ...modelEnv() },
})

async function openNode(name: string, slots: number): Promise<Node> {
  const home = path.join(folder, `home-${name}`)
  await mkdir(home, { mode: 0o700 })
  const env = {
    ...process.env,
    ...{ HOME: home, CAISSON_HOME: home, CAISSON_CACHE: machine.cache },
    ...modelEnv(),
  }
  const member = await FleetMember.open({
    ...{ address: parseFleetAddress(server.address, 'the test'), files: path.join(folder, 'blobs') },
    ...{ name, version: 'test', slots, warn: () => undefined },
  })
  const host = new Host({ env, fences: member })
  const service = await Service.start({
    host,
    fleet: member,
    // As of the command line of the tests.
    version: '0',
    port: 0,
    workspaces: [workspace],
  })
  const token = (await readFile(service.tokenFile, 'utf8')).trim()
  const close = async () => {
    await service.close()
    await host.close()
    await member[Symbol.asyncDispose]()
  }
  const client = new ServiceClient({ baseUrl: service.url, token })
  return { host, client, home, [Symbol.asyncDispose]: close }
}

export function node(at: number): Node {
  const found = nodes[at]
  if (found === undefined) throw new Error(`there is no node ${at}`)
  return found
}

export interface Wanted {
  readonly step?: string
  readonly workspace?: string
  readonly uploadedWorkspace?: string
  readonly asks?: boolean
  readonly sleepAfterMs?: number
  readonly labels?: string[]
  readonly continue?: string
}

/** Started at a node that does not carry it out. */
export async function start(
  { step: id = 'write', asks = false, sleepAfterMs, labels, ...where }: Wanted,
  at = 1,
): Promise<string> {
  const plan = {
    goal: id,
    steps: [{ id: id.replaceAll(' ', '-'), title: id, instructions: `do ${id}`, writes: ['made.txt'] }],
  }
  const rules = asks ? [{ effect: 'ask' as const, tool: 'run_bash' }] : []
  const body = {
    ...{ prompt: `please ${id}`, plan: { from: plan as never }, ...where },
    approvals: { rules },
    ...(labels === undefined ? {} : { requires: { labels } }),
    vm: {
      ...{ memoryBytes: 256 * 1024 ** 2, diskBytes: 64 * 1024 ** 2 },
      ...(sleepAfterMs === undefined ? {} : { sleepAfterMs }),
    },
  }
  return (await node(at).client.call('createRun', { body })).id
}

export const statusOf = async (run: string, at = 1) =>
  (await node(at).client.call('getRun', { params: { run } })).status

export async function startEnded(wanted: Wanted): Promise<string> {
  const run = await start(wanted)
  await expect.poll(() => statusOf(run), waiting).toBe('completed')
  return run
}

/** What the service says of a request that it refuses. */
export async function refusalOf(request: Promise<unknown>) {
  const error = await request.then(
    () => undefined,
    (thrown: unknown) => thrown as ServiceError,
  )
  const { status, code, detail, remedy } = error?.problem ?? {}
  return { status, code, detail, remedy }
}

/** The events of a run, as a node has them that does not carry it out. */
export async function eventsOf(run: string) {
  const { events } = await node(1).client.call('listEvents', { params: { run }, query: { limit: '1000' } })
  return events.map(({ event }) => event)
}
