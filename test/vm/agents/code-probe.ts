/**
 * Takes the agent's place in a VM to test code tools and helper there: serves requests on the control port, one JSON
 * value a line, many at once. Mounts the workspace first.
 */
import { execFile } from 'node:child_process'
import { readdirSync, readFileSync } from 'node:fs'
import { connect } from 'node:net'
import { createInterface } from 'node:readline'
import { setTimeout as sleep } from 'node:timers/promises'
import { promisify } from 'node:util'
import { createPortOpener } from '../../../agent/link/port.ts'
import { createHelper, DEFAULT_HELPER_SOCKET, type ExecRequest } from '../../../agent/link/root-helper.ts'
import { createCodeSearch } from '../../../agent/search/code-search.ts'
import { callFunction } from '../../../agent/test/support/code-functions.ts'
import type { HostileCode } from '../../../agent/test/support/hostile-code.ts'
import { type CodeToolsOptions, createCodeTools } from '../../../agent/tools/code/code.ts'

/** What a test asks for; the reply is `{ id, value }`. */
export type ProbeRequest =
  /** Calls a tool; aborts it after `cancelAfterMs`. Value: the result, what was shown, what the model would get. */
  | {
      readonly op: 'tool'
      readonly name: 'run_bash' | 'run_python'
      readonly input: unknown
      readonly options?: CodeToolsOptions
      readonly cancelAfterMs?: number
    }
  /** Calls a function with code. Value: JSON of its result, or `CODE: MESSAGE`. */
  | {
      readonly op: 'function'
      readonly code: Pick<HostileCode, 'code' | 'language'> & Omit<Partial<HostileCode>, 'gives'>
    }
  /** Runs a program with the helper alone, counting its output; `pauseMs` is slept after each chunk. */
  | { readonly op: 'exec'; readonly request: ExecRequest; readonly pauseMs?: number }
  | { readonly op: 'status' | 'mount' | 'reset' }
  | { readonly op: 'mount-read-only' }
  | { readonly op: 'views-open' | 'views-close'; readonly views: readonly string[]; readonly source?: string }
  /**
   * Calls `search_code` over the workspace, or over the tree `root`. Value: the result, how long it took,
   * this process's memory.
   */
  | { readonly op: 'search'; readonly query: string; readonly root?: string }
  /** Sends bytes to the helper socket as they are. Value: what came back, in hexadecimal. */
  | { readonly op: 'raw'; readonly hex: string }
  /** Value: processes of `work`, groups of calls, memory of PID 1 and of this process, capabilities. */
  | { readonly op: 'look' }
  | { readonly op: 'exit'; readonly code: number }

const helper = createHelper()
const codeSearch = createCodeSearch()

/** The agent starts before the helper socket is there; the real one is asked for nothing before the host saw init ready. */
async function mountWhenServed(): ReturnType<typeof helper.mountWorkspace> {
  for (const end = performance.now() + 30_000; ; await sleep(20)) {
    const mounted = await helper.mountWorkspace(false)
    if (mounted.ok || mounted.error.code !== 'unavailable' || performance.now() > end) return mounted
  }
}

async function serve(request: ProbeRequest): Promise<unknown> {
  switch (request.op) {
    case 'tool':
      return callTool(request)
    case 'function':
      return callFunction(request.code, { helper })
    case 'exec':
      return runProgram(request)
    case 'search':
      return searchCode(request)
    case 'status':
      return helper.readStatus()
    case 'mount':
      return helper.mountWorkspace(false)
    case 'mount-read-only':
      return helper.mountWorkspace(true)
    case 'views-open':
      return helper.openViews(request.views, request.source)
    case 'views-close':
      return helper.closeViews(request.views)
    case 'reset':
      return helper.resetWorkspace(false)
    case 'raw':
      return sendRaw(Buffer.from(request.hex, 'hex'))
    case 'look':
      return look()
    case 'exit':
      process.stderr.write('the probe ends as instructed\n', () => process.exit(request.code))
      return null
  }
}

async function searchCode({ query, root }: Extract<ProbeRequest, { op: 'search' }>): Promise<unknown> {
  const tool = codeSearch.toolOver(root === undefined ? {} : { root, knownAs: '/mnt/workspace' })
  const startedAt = performance.now()
  const input = tool.inputSchema.parse({ query })
  const result = await tool.execute(input, {
    signal: AbortSignal.timeout(300_000),
    emitOutput: () => undefined,
  })
  const memoryMiB = Math.round(process.memoryUsage.rss() / 1024 ** 2)
  return { result, durationMs: Math.round(performance.now() - startedAt), memoryMiB }
}

async function callTool(request: Extract<ProbeRequest, { op: 'tool' }>): Promise<unknown> {
  const tool = createCodeTools(helper, request.options).find(({ name }) => name === request.name)
  if (tool === undefined) throw new Error(`no tool ${request.name}`)
  const shown = { stdout: '', stderr: '' }
  const signal =
    request.cancelAfterMs === undefined
      ? new AbortController().signal
      : AbortSignal.timeout(request.cancelAfterMs)
  const result = await tool.execute(tool.inputSchema.parse(request.input), {
    signal,
    emitOutput: (stream, text) => {
      shown[stream] += text
    },
  })
  const told = result.ok ? tool.render?.(tool.outputSchema.parse(result.value)) : null
  return { result, shown, told }
}

async function runProgram({ request, pauseMs }: Extract<ProbeRequest, { op: 'exec' }>): Promise<unknown> {
  const bytes = { stdout: 0, stderr: 0 }
  const ended = await helper.execInSandbox(request, {
    onOutput: async (stream, chunk) => {
      bytes[stream] += chunk.length
      if (pauseMs !== undefined) await new Promise((turn) => setTimeout(turn, pauseMs))
    },
  })
  return { ended, bytes }
}

async function sendRaw(bytes: Buffer): Promise<string> {
  const socket = connect({ path: DEFAULT_HELPER_SOCKET, allowHalfOpen: true })
  socket.end(bytes)
  const pieces: Buffer[] = []
  try {
    for await (const piece of socket) pieces.push(Buffer.from(piece))
  } catch {
    // Closed while we still wrote: what came back counts.
  }
  return Buffer.concat(pieces).toString('hex')
}

async function look(): Promise<unknown> {
  const owners = await promisify(execFile)('/bin/ps', ['-eo', 'uid='])
  const status = readFileSync('/proc/self/status', 'utf8')
  return {
    workProcesses: owners.stdout.split('\n').filter((uid) => uid.trim() === '1000').length,
    callGroups: readdirSync('/sys/fs/cgroup/calls', { withFileTypes: true }).filter((at) => at.isDirectory())
      .length,
    initKiB: Number(/VmRSS:\s+(\d+)/.exec(readFileSync('/proc/1/status', 'utf8'))?.[1]),
    agentMiB: Math.round(process.memoryUsage().rss / 1024 / 1024),
    capabilities: /CapEff:\s+(\w+)/.exec(status)?.[1],
    noNewPrivileges: /NoNewPrivs:\s+(\d)/.exec(status)?.[1],
    user: [process.getuid?.(), process.getgid?.()],
    exits: JSON.parse(readFileSync(process.env.CAISSON_AGENT_EXITS ?? '', 'utf8')),
  }
}

/** What the bundle of this file does in the guest. */
export async function startAgent(): Promise<void> {
  const port = await createPortOpener('caisson.rpc')()
  const mounted = await mountWhenServed()
  port.write(`${JSON.stringify({ id: 0, value: mounted })}\n`)
  for await (const line of createInterface({ input: port })) {
    const { id, ...request } = JSON.parse(line) as ProbeRequest & { id: number }
    void serve(request)
      .catch((error: unknown) => ({ thrown: String(error) }))
      .then((value) => port.write(`${JSON.stringify({ id, value })}\n`))
  }
}
