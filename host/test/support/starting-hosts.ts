// Host processes that are in the middle of a start, to be killed there by a test.

import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import type { StartingHostOrder } from './starting-host.ts'

const PROGRAM = fileURLToPath(new URL('./starting-host.ts', import.meta.url))
/** Within the time of a test, so that the test says what it waited for. */
const LINE_TIMEOUT_MS = 120_000

/** A host process that has begun with its order. */
export class StartingHost {
  readonly #process: ChildProcess
  /** Each line once: several may arrive in one piece. */
  readonly #lines: AsyncIterator<string>

  private constructor(process: ChildProcess, lines: AsyncIterator<string>) {
    this.#process = process
    this.#lines = lines
  }

  /** Starts a host process and resolves when it is about to begin with `order`. It ends with this process. */
  static async spawn(order: StartingHostOrder, env: NodeJS.ProcessEnv = process.env): Promise<StartingHost> {
    const args = ['--conditions=caisson-source', PROGRAM, JSON.stringify(order)]
    const child = spawn(process.execPath, args, { env, stdio: ['pipe', 'pipe', 'inherit'] })
    const host = new StartingHost(child, createInterface(child.stdout)[Symbol.asyncIterator]())
    await host.#nextLine('begins')
    return host
  }

  /** Resolves when what was ordered runs. */
  async untilRunning(): Promise<void> {
    await this.#nextLine('runs')
  }

  /** Resolves when the process has ended. */
  async kill(): Promise<void> {
    this.#process.kill('SIGKILL')
    const { exitCode, signalCode } = this.#process
    if (exitCode === null && signalCode === null) await once(this.#process, 'exit')
  }

  async #nextLine(expected: string): Promise<void> {
    const timedOut = sleep(LINE_TIMEOUT_MS, 'nothing', { ref: false })
    const line = await Promise.race([this.#lines.next().then(({ value }) => value ?? 'its end'), timedOut])
    if (line === expected) return
    await this.kill()
    throw new Error(`a host process was to say "${expected}", and there was "${line}"`)
  }
}
