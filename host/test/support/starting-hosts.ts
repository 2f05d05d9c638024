// Host processes that are in the middle of a start, to be killed there by a test.

import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { createInterface, type Interface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import type { StartingHostOrder } from './starting-host.ts'

const PROGRAM = fileURLToPath(new URL('./starting-host.ts', import.meta.url))
const outputs = new WeakMap<ChildProcess, Interface>()

/** A host process that is about to begin with `order`; the caller kills it. */
export async function spawnStartingHost(
  order: StartingHostOrder,
  env: NodeJS.ProcessEnv = process.env,
): Promise<ChildProcess> {
  const args = ['--conditions=caisson-source', PROGRAM, JSON.stringify(order)]
  const host = spawn(process.execPath, args, { env, stdio: ['ignore', 'pipe', 'inherit'] })
  const output = createInterface(host.stdout)
  outputs.set(host, output)
  await nextLine(host, 'begins')
  return host
}

/** Resolves when what was ordered runs. */
export async function untilRunning(host: ChildProcess): Promise<void> {
  await nextLine(host, 'runs')
}

async function nextLine(host: ChildProcess, expected: string): Promise<void> {
  const output = outputs.get(host)
  if (!output) throw new TypeError('not a host of spawnStartingHost')
  const ended = once(host, 'exit').then(() => ['its end'])
  const [line] = await Promise.race([once(output, 'line'), ended])
  if (line !== expected) throw new Error(`a host process was to say "${expected}", and there was "${line}"`)
}
