/**
 * A session's editor by version 2 of the protocol, as a client of the SDK. It has no files of the editor: the text of a
 * file is that of the prompt, or of the disk.
 */
import type {
  ContentBlock,
  CreateElicitationResponse,
  RequestPermissionRequest,
  RequestPermissionResponse,
  SessionUpdate,
} from '@agentclientprotocol/sdk'
import type {
  AgentContext,
  ClientCapabilities,
  SessionUpdate as Update2,
} from '@agentclientprotocol/sdk/experimental/v2'
import { methods } from '@agentclientprotocol/sdk/experimental/v2'
import { type Editor, type Form, type SessionState, settled } from './editor.ts'
import { formOf, insertedOf, permissionOf, stateOf, updateOf } from './version-2-forms.ts'

export interface Editor2Parts {
  readonly client: AgentContext
  readonly sessionId: string
  readonly capabilities: ClientCapabilities
  readonly log: (line: string) => void
}

export class Version2Editor implements Editor {
  readonly readFile = undefined
  readonly writeFile = undefined
  readonly #parts: Editor2Parts
  #isRunning = false
  /** Questions without an answer. */
  #questions = 0

  constructor(parts: Editor2Parts) {
    this.#parts = parts
  }

  get hasForms(): boolean {
    return (this.#parts.capabilities.elicitation?.form ?? null) !== null
  }

  async tell(updates: readonly SessionUpdate[]): Promise<void> {
    for (const update of updates) {
      const translated = updateOf(update)
      if (translated !== undefined) await this.#notify(translated)
    }
  }

  async show(state: SessionState): Promise<void> {
    this.#isRunning = state.state === 'running'
    await this.#notify(stateOf(state, this.#questions > 0))
  }

  async insert(messageId: string, prompt: readonly ContentBlock[]): Promise<void> {
    await this.#notify(insertedOf(messageId, prompt))
  }

  async askPermission(
    request: Omit<RequestPermissionRequest, 'sessionId'>,
    signal: AbortSignal,
  ): Promise<RequestPermissionResponse | undefined> {
    const { client, sessionId } = this.#parts
    const sent = permissionOf(sessionId, request)
    const options = { cancellationSignal: signal, stopWaitingOnCancel: true }
    const asking = async () => await client.request(methods.client.session.requestPermission, sent, options)
    return (await this.#blockedBy(asking, signal)) as RequestPermissionResponse | undefined
  }

  async askForm(form: Form, signal: AbortSignal): Promise<CreateElicitationResponse | undefined> {
    const { client, sessionId } = this.#parts
    const sent = formOf(sessionId, form)
    const options = { cancellationSignal: signal, stopWaitingOnCancel: true }
    const asking = async () => await client.request(methods.client.elicitation.create, sent, options)
    return (await this.#blockedBy(asking, signal)) as CreateElicitationResponse | undefined
  }

  /** The work of the session waits for the person meanwhile. */
  async #blockedBy<T>(asking: () => Promise<T>, signal: AbortSignal): Promise<T | undefined> {
    this.#questions += 1
    if (this.#questions === 1) await this.#showAgain()
    try {
      return await settled(asking(), signal, this.#parts.log)
    } finally {
      this.#questions -= 1
      if (this.#questions === 0) await this.#showAgain().catch(() => undefined)
    }
  }

  async #showAgain(): Promise<void> {
    if (this.#isRunning) await this.show({ state: 'running' })
  }

  async #notify(update: Update2): Promise<void> {
    const { client, sessionId } = this.#parts
    await client.notify(methods.client.session.update, { sessionId, update })
  }
}
