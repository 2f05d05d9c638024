// A sandbox provider for the harness of the AI SDK: coding agents such as Claude Code and Codex work in a Caisson VM.
import { posix } from 'node:path'
import type { HarnessV1NetworkSandboxSession, HarnessV1SandboxProvider } from '@ai-sdk/harness'
import { CaissonError, type ForwardedPort, type Host, type Sandbox, type SandboxOptions } from 'caisson'

type RestrictedSession = ReturnType<HarnessV1NetworkSandboxSession['restricted']>
type Process = Awaited<ReturnType<RestrictedSession['spawn']>>
type ProcessOptions = Parameters<RestrictedSession['spawn']>[0]

const workspace = '/mnt/workspace'
const maxFileBytes = 1024 ** 3
const maxOutputBytes = 64 * 1024 ** 2
/** What a stream holds until somebody reads it; the command waits then. */
const streamBytes = 1024 ** 2
/** As of a shell, for a command that was killed. */
const killedCode = 137

export interface CaissonSandboxOptions extends SandboxOptions {
  readonly host: Host
  /** Ports of the VM on which the coding agent listens, such as its bridge. Default: 4000. */
  readonly ports?: readonly number[]
  /** Gets each sandbox, to review and apply its changes before the session is destroyed. */
  readonly onSandbox?: (sandbox: Sandbox) => void
}

/** Each session is a new VM, which ends with the session and with this process: it cannot be resumed. */
export function caissonSandbox(options: CaissonSandboxOptions): HarnessV1SandboxProvider {
  const { host, ports = [4000], onSandbox, ...sandboxOptions } = options
  return {
    specificationVersion: 'harness-sandbox-v1',
    providerId: 'caisson',
    createSession: async ({ abortSignal, onFirstCreate } = {}) => {
      const signal = abortSignal === undefined ? {} : { signal: abortSignal }
      const sandbox = await host.sandbox({ ...sandboxOptions, ...signal })
      try {
        onSandbox?.(sandbox)
        const session = openSession(sandbox, ports)
        await onFirstCreate?.(session.restricted(), abortSignal === undefined ? {} : { abortSignal })
        return session
      } catch (error) {
        await sandbox.close()
        throw error
      }
    },
  }
}

function openSession(sandbox: Sandbox, ports: readonly number[]): HarnessV1NetworkSandboxSession {
  const forwarded = new Map<number, Promise<ForwardedPort>>()
  const getPortUrl: HarnessV1NetworkSandboxSession['getPortUrl'] = async ({ port, protocol = 'http' }) => {
    if (!ports.includes(port))
      throw new Error(`Port ${port} is not one of the sandbox's: ${ports.join(', ')}`)
    const opening = forwarded.get(port) ?? sandbox.forward(port)
    forwarded.set(port, opening)
    // What failed is tried again by the next call.
    opening.catch(() => forwarded.delete(port))
    return `${protocol}://127.0.0.1:${(await opening).port}`
  }
  const files = openFiles(sandbox)
  return {
    ...files,
    id: sandbox.id,
    defaultWorkingDirectory: workspace,
    ports,
    getPortUrl,
    getPortEndpoint: async (wanted) => ({ url: await getPortUrl(wanted) }),
    stop: () => sandbox.close(),
    destroy: () => sandbox.close(),
    restricted: () => files,
  }
}

/** Commands and files. */
function openFiles(sandbox: Sandbox): RestrictedSession {
  const readBinaryFile: RestrictedSession['readBinaryFile'] = ({ path, abortSignal }) =>
    readBytes(sandbox, path, abortSignal)
  const writeBinaryFile: RestrictedSession['writeBinaryFile'] = ({ path, content, abortSignal }) =>
    writeBytes(sandbox, path, content, abortSignal)
  return {
    description: `A Linux VM of Caisson. The working directory is ${workspace}; the network is as its host allows.`,
    readBinaryFile,
    readFile: async (wanted) => {
      const bytes = await readBinaryFile(wanted)
      return bytes === null ? null : new Blob([new Uint8Array(bytes)]).stream()
    },
    readTextFile: async ({ encoding = 'utf-8', startLine = 1, endLine, ...wanted }) => {
      const bytes = await readBinaryFile(wanted)
      if (bytes === null) return null
      const text = new TextDecoder(encoding).decode(bytes)
      if (startLine === 1 && endLine === undefined) return text
      return text
        .split('\n')
        .slice(startLine - 1, endLine)
        .join('\n')
    },
    writeBinaryFile,
    writeFile: async ({ content, ...wanted }) => {
      await writeBinaryFile({ ...wanted, content: new Uint8Array(await new Response(content).arrayBuffer()) })
    },
    writeTextFile: async ({ content, encoding = 'utf-8', ...wanted }) => {
      if (!/^utf-?8$/i.test(encoding)) throw new Error(`Only utf-8 can be written, not ${encoding}`)
      await writeBinaryFile({ ...wanted, content: new TextEncoder().encode(content) })
    },
    spawn: async (wanted) => spawn(sandbox, wanted),
    run: async (wanted) => {
      const { exitCode, stdout, stderr } = await sandbox.exec(wanted.command, {
        ...execOptions(wanted),
        maxOutputBytes,
      })
      return { exitCode: exitCode ?? killedCode, stdout, stderr }
    },
  }
}

function execOptions({ workingDirectory, env, abortSignal }: ProcessOptions) {
  return {
    ...(workingDirectory === undefined ? {} : { cwd: workingDirectory }),
    ...(env === undefined ? {} : { env }),
    ...(abortSignal === undefined ? {} : { signal: abortSignal }),
  }
}

function spawn(sandbox: Sandbox, wanted: ProcessOptions): Process {
  const killed = new AbortController()
  const { abortSignal } = wanted
  const signal = abortSignal === undefined ? killed.signal : AbortSignal.any([abortSignal, killed.signal])
  const [stdout, stderr] = [openOutput(), openOutput()]
  const work = async () => {
    try {
      const { exitCode } = await sandbox.exec(wanted.command, {
        ...execOptions(wanted),
        ...{ signal, onStdout: stdout.write, onStderr: stderr.write, maxOutputBytes: 1 },
      })
      return { exitCode: exitCode ?? killedCode }
    } catch (error) {
      if (killed.signal.aborted) return { exitCode: killedCode }
      throw abortSignal?.aborted ? abortSignal.reason : error
    } finally {
      stdout.end()
      stderr.end()
    }
  }
  const ended = work()
  // `wait` tells of a failure; nobody has to call it.
  ended.catch(() => undefined)
  return {
    stdout: stdout.readable,
    stderr: stderr.readable,
    wait: () => ended,
    kill: async () => {
      killed.abort()
      await ended.catch(() => undefined)
    },
  }
}

/** The command waits while its reader is behind, until one of both ends. */
function openOutput() {
  const { readable, writable } = new TransformStream<Uint8Array, Uint8Array>(
    undefined,
    new ByteLengthQueuingStrategy({ highWaterMark: streamBytes }),
    new ByteLengthQueuingStrategy({ highWaterMark: streamBytes }),
  )
  const writer = writable.getWriter()
  const encoder = new TextEncoder()
  const ended = Promise.withResolvers<void>()
  return {
    readable,
    write: async (text: string) => {
      await Promise.race([writer.ready, ended.promise])
      // A reader that cancelled wants no more.
      void writer.write(encoder.encode(text)).catch(() => undefined)
    },
    end: () => {
      ended.resolve()
      void writer.close().catch(() => undefined)
    },
  }
}

async function readBytes(
  sandbox: Sandbox,
  path: string,
  abortSignal: AbortSignal | undefined,
): Promise<Uint8Array | null> {
  const signal = abortSignal === undefined ? {} : { signal: abortSignal }
  try {
    if (isInWorkspace(path)) return await sandbox.readFile(path, { ...signal, maxBytes: maxFileBytes })
    const program = ['sh', '-c', '[ -e "$1" ] || exit 66; exec base64 -w 0 -- "$1"', 'sh', path]
    const { exitCode, stdout, stderr, truncated } = await sandbox.exec(program, { ...signal, maxOutputBytes })
    if (exitCode === 66) return null
    if (exitCode !== 0) throw new Error(`${path} cannot be read: ${stderr}`)
    if (truncated) throw new Error(`${path} is too large to read outside of ${workspace}`)
    return Buffer.from(stdout, 'base64')
  } catch (error) {
    if (error instanceof CaissonError && error.code === 'file_not_found') return null
    throw error
  }
}

async function writeBytes(
  sandbox: Sandbox,
  path: string,
  content: Uint8Array,
  abortSignal: AbortSignal | undefined,
): Promise<void> {
  const signal = abortSignal === undefined ? {} : { signal: abortSignal }
  if (isInWorkspace(path)) return await sandbox.writeFile(path, content, signal)
  const program = ['sh', '-c', 'mkdir -p -- "$(dirname -- "$1")" && exec cat > "$1"', 'sh', path]
  const { exitCode, stderr } = await sandbox.exec(program, { ...signal, input: content })
  if (exitCode !== 0) throw new Error(`${path} cannot be written: ${stderr}`)
}

function isInWorkspace(path: string): boolean {
  const whole = posix.resolve(workspace, path)
  return whole === workspace || whole.startsWith(`${workspace}/`)
}
