/**
 * Transport to a server that is a child process, over its standard input and output. It leads its own process group,
 * so that its descendants end with it, and gets only harmless environment variables. Refuses lines over a limit.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import type { Writable } from 'node:stream'
import { setTimeout as sleep } from 'node:timers/promises'
import type { JSONRPCMessage, Transport } from '@modelcontextprotocol/client'
import {
  detachFromLoop,
  endWithUs,
  harmlessVariables,
  hasGroups,
  signalGroup,
} from '../processes/child-group.ts'
import type { McpServerConfig } from './config.ts'
import { MessageLines, stderrMaxChars, unreadMaxBytes } from './lines.ts'

/** How long a server has to end after its input is closed, and again after a signal. */
const graceMs = 1_000
/** How long to wait for remaining output of an ended server. */
const lastOutputMs = 200

export class StdioTransport implements Transport {
  readonly #config: McpServerConfig
  #child: ChildProcess | null = null
  readonly #lines: MessageLines
  #stderr = ''
  #closed = false
  #closing: Promise<void> | null = null
  #draining: Promise<unknown> | null = null
  /** With `pid`, the mark of a program for the library. */
  readonly stderr = null
  onclose?: () => void
  onerror?: (error: Error) => void
  onmessage?: (message: JSONRPCMessage) => void

  constructor(config: McpServerConfig) {
    this.#config = config
    this.#lines = new MessageLines({
      onMessage: (message) => this.onmessage?.(message),
      onError: (error) => this.onerror?.(error),
      onTooLong: () => void this.close().catch(() => undefined),
    })
  }

  /** The end of the server's log; may be empty. */
  get lastWords(): string {
    return this.#stderr.trim()
  }

  get pid(): number | null {
    return this.#child?.pid ?? null
  }

  async start(): Promise<void> {
    const { command = '', args = [], env = {}, cwd } = this.#config
    const child = spawn(command, [...args], {
      env: { ...harmlessVariables(), ...env },
      stdio: ['pipe', 'pipe', 'pipe'],
      detached: hasGroups,
      ...(cwd === undefined ? {} : { cwd }),
    })
    this.#child = child
    endWithUs(child)
    // An idle server must not keep an application's process alive.
    detachFromLoop(child)
    // Both may fail long after they matter.
    child.on('error', (error) => this.onerror?.(error))
    child.stdin?.on('error', (error) => this.onerror?.(error))
    child.stdout?.setEncoding('utf8').on('data', (text: string) => this.#lines.take(text))
    child.stderr?.setEncoding('utf8').on('data', (text: string) => {
      this.#stderr = (this.#stderr + text).slice(-stderrMaxChars)
    })
    child.once('close', () => this.#noteClosed())
    // Descendants may keep its pipes open indefinitely.
    child.once('exit', () => setTimeout(() => this.#noteClosed(), lastOutputMs).unref())
    await once(child, 'spawn')
  }

  async send(message: JSONRPCMessage): Promise<void> {
    const input = this.#child?.stdin
    if (this.#closed || input === null || input === undefined || !input.writable)
      throw new Error('the MCP server has ended')
    if (input.writableLength > unreadMaxBytes) {
      this.close().catch(() => undefined)
      throw new Error(`the MCP server left more than ${unreadMaxBytes} bytes unread`)
    }
    if (!input.write(`${JSON.stringify(message)}\n`)) await this.#drained(input)
  }

  /** Limits how long a server that does not read can block us. All waiting writes share one listener. */
  #drained(input: Writable): Promise<unknown> {
    this.#draining ??= Promise.race([once(input, 'drain'), once(input, 'close')]).finally(() => {
      this.#draining = null
    })
    return this.#draining
  }

  close(): Promise<void> {
    this.#closing ??= this.#end()
    return this.#closing
  }

  async #end(): Promise<void> {
    // Ignore output of a server that is being stopped.
    this.#lines.close()
    this.#child?.stdout?.destroy()
    if (this.#child !== null) await endGroup(this.#child)
    this.#noteClosed()
  }

  #noteClosed(): void {
    if (this.#closed) return
    this.#closed = true
    // Its descendants end with it.
    if (this.#child !== null) signalGroup(this.#child, 'SIGKILL')
    this.onclose?.()
  }
}

async function endGroup(child: ChildProcess): Promise<void> {
  const ended =
    child.exitCode !== null || child.signalCode !== null || child.pid === undefined
      ? Promise.resolve()
      : once(child, 'exit')
  child.ref()
  child.stdin?.end()
  for (const signal of ['SIGTERM', 'SIGKILL'] as const) {
    const controller = new AbortController()
    const waited = sleep(graceMs, 'late', { signal: controller.signal }).catch(() => 'late')
    const first = await Promise.race([ended, waited])
    controller.abort()
    if (first !== 'late') break
    signalGroup(child, signal)
  }
  signalGroup(child, 'SIGKILL')
  await ended
}
