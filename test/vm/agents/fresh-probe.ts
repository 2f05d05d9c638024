/**
 * Takes the agent's place in a VM to test what copies of one template have in common: draws random values in every way
 * that a program can, in this process and in others. Serves requests on the control port, one JSON value a line.
 */
import { execFile } from 'node:child_process'
import { generateKeyPairSync, randomBytes, randomInt, randomUUID, webcrypto } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { createInterface } from 'node:readline'
import { promisify } from 'node:util'
import { Worker } from 'node:worker_threads'
import { createPortOpener } from '../../../agent/link/port.ts'

/** What a test asks for; the reply is `{ id, value }`. */
export type FreshRequest =
  /** Value: {@link Drawn} of `count` values each, in this process; `cached` also from where Node keeps values ready. */
  | { readonly op: 'draw'; readonly count: number; readonly cached: boolean }
  /** Value: {@link Drawn} of `count` values each, in processes and threads of their own; `oldWorker` began before. */
  | { readonly op: 'elsewhere'; readonly count: number }
  /** Value: {@link Facts}. */
  | { readonly op: 'facts' }

/** Way of drawing to values. */
export type Drawn = Readonly<Record<string, readonly string[]>>

export interface Facts {
  /** Milliseconds since 1970. */
  readonly nowMs: number
  readonly bootId: string
  /** Null when the guest has none. */
  readonly machineId: string | null
}

const DRAWING = `const { randomBytes } = require('node:crypto')
  const draw = (count) => Array.from({ length: count }, () => randomBytes(16).toString('hex'))`
const NODE = `${DRAWING}; console.log(draw(Number(process.argv[1])).join('\\n'))`
const WORKER = `${DRAWING}
  const { parentPort } = require('node:worker_threads')
  parentPort.on('message', (count) => parentPort.postMessage(draw(count)))`
const PYTHON = `import secrets, sys
print('\\n'.join(secrets.token_hex(16) for _ in range(int(sys.argv[1]))))`
const SHELL = 'head -c $(($1 * 16)) /dev/urandom | od -An -v -tx1 -w16 | tr -d " "'

/** Begun with the first request, and so part of a template that was warmed up by one. */
let oldWorker: Worker | undefined

/** What Node keeps ready from a draw in the template is the same in every copy: the agent never draws that way. */
function drawCached(count: number): Drawn {
  const times = (one: () => string) => Array.from({ length: count }, one)
  return { randomInt: times(() => String(randomInt(2 ** 48 - 1))), cachedUUID: times(() => randomUUID()) }
}

function draw(count: number): Drawn {
  const times = (one: () => string) => Array.from({ length: count }, one)
  return {
    randomBytes: times(() => randomBytes(16).toString('hex')),
    randomUUID: times(() => randomUUID({ disableEntropyCache: true })),
    getRandomValues: times(() => Buffer.from(webcrypto.getRandomValues(new Uint8Array(16))).toString('hex')),
    ed25519: [
      generateKeyPairSync('ed25519').publicKey.export({ type: 'spki', format: 'der' }).toString('hex'),
    ],
  }
}

async function drawElsewhere(count: number): Promise<Drawn> {
  oldWorker ??= new Worker(WORKER, { eval: true })
  const newWorker = new Worker(WORKER, { eval: true })
  const drawn = {
    oldWorker: await drawIn(oldWorker, count),
    newWorker: await drawIn(newWorker, count),
    node: await linesOf(process.execPath, ['-e', NODE, String(count)]),
    python: await linesOf('/usr/bin/python3', ['-c', PYTHON, String(count)]),
    shell: await linesOf('/bin/sh', ['-c', SHELL, 'sh', String(count)]),
  }
  await newWorker.terminate()
  return drawn
}

function drawIn(worker: Worker, count: number): Promise<string[]> {
  return new Promise((resolve, reject) => {
    worker.once('message', resolve)
    worker.once('error', reject)
    worker.postMessage(count)
  })
}

async function linesOf(file: string, args: readonly string[]): Promise<string[]> {
  const { stdout } = await promisify(execFile)(file, [...args], { maxBuffer: 2 ** 24 })
  return stdout.trim().split('\n')
}

function readFacts(): Facts {
  const read = (file: string) => readFileSync(file, 'utf8').trim()
  let machineId: string | null = null
  try {
    machineId = read('/etc/machine-id')
  } catch {
    // There is none.
  }
  return { nowMs: Date.now(), bootId: read('/proc/sys/kernel/random/boot_id'), machineId }
}

async function serve(request: FreshRequest): Promise<unknown> {
  switch (request.op) {
    case 'draw':
      return { ...draw(request.count), ...(request.cached ? drawCached(request.count) : {}) }
    case 'elsewhere':
      return await drawElsewhere(request.count)
    case 'facts':
      return readFacts()
  }
}

/** What the bundle of this file does in the guest. */
export async function startAgent(): Promise<void> {
  const port = await createPortOpener('caisson.rpc')()
  for await (const line of createInterface({ input: port })) {
    const { id, ...request } = JSON.parse(line) as FreshRequest & { id: number }
    const value = await serve(request).catch((error: unknown) => ({ thrown: String(error) }))
    port.write(`${JSON.stringify({ id, value })}\n`)
  }
}
