/** The changes of the run that is shown: listed, and read again after each apply and undo. */
import * as vscode from 'vscode'
import { ServiceError } from '../../client/index.ts'
import type { Session } from '../session/session.ts'
import type { Change } from './sides.ts'

export class RunChanges implements vscode.Disposable {
  readonly #session: Session
  readonly #changed = new vscode.EventEmitter<string>()
  readonly #lists = new Map<string, readonly Change[]>()
  readonly #reading = new Map<string, Promise<void>>()

  constructor(session: Session) {
    this.#session = session
  }

  /** Fires with the id of the run whose changes were read. */
  readonly onChange = this.#changed.event

  /** As they were read last; empty before. */
  of(runId: string): readonly Change[] {
    return this.#lists.get(runId) ?? []
  }

  find(runId: string, path: string): Change | undefined {
    return this.of(runId).find((change) => change.path === path)
  }

  /** @throws {Error} when the service refuses; a run without changes has none */
  async read(runId: string): Promise<void> {
    const reading = this.#reading.get(runId) ?? this.#load(runId).finally(() => this.#reading.delete(runId))
    this.#reading.set(runId, reading)
    await reading
  }

  /** Forgets all runs but one. */
  keepOnly(runId: string): void {
    for (const other of [...this.#lists.keys()]) if (other !== runId) this.#lists.delete(other)
  }

  dispose(): void {
    this.#changed.dispose()
  }

  async #load(runId: string): Promise<void> {
    try {
      const { changes } = await this.#session.client.call('listChanges', { params: { run: runId } })
      this.#lists.set(runId, changes)
    } catch (error) {
      // A run that is at work has no changes yet.
      if (!(error instanceof ServiceError && error.status === 409)) throw error
      this.#lists.delete(runId)
    }
    this.#changed.fire(runId)
  }
}
