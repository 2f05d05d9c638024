/**
 * The agent of the Agent Client Protocol: an editor starts this process and speaks to it on its standard streams. Runs are
 * carried out elsewhere, so they outlive the editor; nothing is allowed because the editor is gone.
 */
import type { Readable, Writable } from 'node:stream'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { MessageTooLargeError } from '@agentclientprotocol/sdk'
import { agentProtocolRouter } from '@agentclientprotocol/sdk/experimental/v2'
import { CaissonError } from '../index.ts'
import { openFrames } from './frames.ts'
import { Sessions, type SessionsOptions } from './sessions.ts'
import { Version1 } from './version-1.ts'
import { Version2 } from './version-2.ts'

/** Parts of the protocol that are not stable: forks of sessions, and its version 2. */
export type UnstablePart = 'fork' | 'v2'

export interface AcpOptions extends SessionsOptions {
  readonly input: Readable
  /** Gets frames only. */
  readonly output: Writable
  /** Of Caisson. */
  readonly version: string
  /** Default: none. */
  readonly unstable?: readonly UnstablePart[]
}

/** Serves until the editor closes the connection. @throws {CaissonError} `limit_reached` for a frame that is too long */
export async function serveAcp(options: AcpOptions): Promise<void> {
  const { words, log, version, unstable = [] } = options
  const sessions = new Sessions(options)
  const hasFork = unstable.includes('fork')
  const parts = { sessions, words, log, version, hasFork }
  const frames = openFrames({ ...options, hasFork })
  const version1 = new Version1(parts).app()
  const connection = unstable.includes('v2')
    ? agentProtocolRouter().withV1(version1).withV2(new Version2(parts).app()).connect(frames.stream)
    : version1.connect(frames.stream)
  await connection.closed
  sessions.leave()
  // The input tells why it ended just behind the connection.
  await nextTurn()
  const reason = frames.inputError()
  if (reason instanceof MessageTooLargeError)
    throw new CaissonError(
      'limit_reached',
      `the editor sent a frame longer than ${reason.maxMessageBytes} bytes`,
    )
}
