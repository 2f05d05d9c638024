/**
 * A real OpenAI-compatible server for tests: Debian's llama-server with a scripted model. Where it cannot be had, CI fails,
 * and elsewhere the caller skips with the reason.
 */
import { type ChildProcess, execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { type AddressInfo, createServer } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { beforeAll, type TestContext } from 'vitest'
import { z } from 'zod'

export const llamaKey = 'llama-test-key-0123456789'
export const llamaModel = 'caisson/scripted'

export interface LlamaServer extends AsyncDisposable {
  /** Such as `http://127.0.0.1:40123/v1`. */
  readonly url: string
}

/** How to start one, or why there is none. */
type LlamaSetup =
  | { ok: true; start(more: readonly string[]): Promise<LlamaServer> }
  | { ok: false; reason: string }

const Prepared = z.strictObject({
  command: z.string(),
  arguments: z.array(z.string()),
  environment: z.record(z.string(), z.string()),
})

const prepareTimeoutMs = 8 * 60_000
const startTimeoutMs = 30_000

/**
 * Prepares the server before the tests of the calling file. What it gives starts one, which the test disposes, or
 * skips the test with the reason; in CI the file fails instead.
 * @param more options of its command line
 */
export function useLlamaServer(more: readonly string[] = []): (context: TestContext) => Promise<LlamaServer> {
  let setup: LlamaSetup | undefined
  beforeAll(async () => {
    setup = await setUpLlamaServer()
  }, prepareTimeoutMs + startTimeoutMs)
  return async (context) => {
    if (setup?.ok !== true) return context.skip(setup?.reason)
    return await setup.start(more)
  }
}

/** @throws in CI, when it cannot be had */
async function setUpLlamaServer(): Promise<LlamaSetup> {
  const script = fileURLToPath(new URL('../../scripts/llama-server/prepare.ts', import.meta.url))
  try {
    const { stdout } = await promisify(execFile)(process.execPath, [script], { timeout: prepareTimeoutMs })
    const prepared = Prepared.parse(JSON.parse(stdout))
    return { ok: true, start: (more) => startServer(prepared, more) }
  } catch (cause) {
    const said = cause instanceof Error && 'stderr' in cause ? String(cause.stderr).trim() : String(cause)
    if (process.env.CI !== undefined && process.env.CI !== '') {
      throw new Error(`no llama-server to test against, which CI must have: ${said}`, { cause })
    }
    return { ok: false, reason: said }
  }
}

async function startServer(
  prepared: z.infer<typeof Prepared>,
  more: readonly string[],
): Promise<LlamaServer> {
  const port = await findFreePort()
  const options = [
    '--host',
    '127.0.0.1',
    '--port',
    String(port),
    '--alias',
    llamaModel,
    '--api-key',
    llamaKey,
  ]
  const child = spawn(
    prepared.command,
    [...prepared.arguments, ...options, '--ctx-size', '32768', '--parallel', '2', ...more],
    { env: { ...prepared.environment }, stdio: ['ignore', 'ignore', 'pipe'] },
  )
  let log = ''
  child.stderr.on('data', (part: Buffer) => {
    log = (log + part.toString()).slice(-4_000)
  })
  const stop = (): Promise<void> => stopChild(child)
  const origin = `http://127.0.0.1:${port}`
  for (let waitedMs = 0; waitedMs < startTimeoutMs; waitedMs += 50) {
    if (child.exitCode !== null || child.signalCode !== null) break
    const healthy = await fetch(`${origin}/health`).then(
      (answer) => answer.ok,
      () => false,
    )
    if (healthy) return { url: `${origin}/v1`, [Symbol.asyncDispose]: stop }
    await sleep(50)
  }
  await stop()
  throw new Error(`llama-server did not become healthy; its last words:\n${log}`)
}

async function stopChild(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return
  const ended = once(child, 'exit')
  child.kill('SIGKILL')
  await ended
}

async function findFreePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  server.close()
  await once(server, 'close')
  return port
}
