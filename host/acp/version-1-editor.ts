/** A session's editor by version 1 of the protocol, as a client of the SDK. */
import {
  type AgentContext,
  type ClientCapabilities,
  type CreateElicitationRequest,
  type CreateElicitationResponse,
  methods,
  type RequestPermissionRequest,
  type RequestPermissionResponse,
  type SessionUpdate,
} from '@agentclientprotocol/sdk'
import { type Editor, type Form, settled } from './editor.ts'

/** The editor does not answer for this long: its file is taken as it is on the disk. */
const readMs = 5_000

export interface EditorParts {
  readonly client: AgentContext
  readonly sessionId: string
  readonly capabilities: ClientCapabilities
  readonly log: (line: string) => void
}

export class Version1Editor implements Editor {
  readonly #parts: EditorParts

  constructor(parts: EditorParts) {
    this.#parts = parts
  }

  get hasForms(): boolean {
    return (this.#parts.capabilities.elicitation?.form ?? null) !== null
  }

  /** Version 1 has no state: the answer to a prompt says that its turn is over. */
  async show(): Promise<void> {}

  /** In version 1 the editor shows its prompts by itself. */
  async insert(): Promise<void> {}

  async tell(updates: readonly SessionUpdate[]): Promise<void> {
    const { client, sessionId } = this.#parts
    for (const update of updates) await client.notify(methods.client.session.update, { sessionId, update })
  }

  async askPermission(
    request: Omit<RequestPermissionRequest, 'sessionId'>,
    signal: AbortSignal,
  ): Promise<RequestPermissionResponse | undefined> {
    const { client, sessionId, log } = this.#parts
    const waiting = client.request(
      methods.client.session.requestPermission,
      { ...request, sessionId },
      { cancellationSignal: signal, stopWaitingOnCancel: true },
    )
    return await settled(waiting, signal, log)
  }

  async askForm(request: Form, signal: AbortSignal): Promise<CreateElicitationResponse | undefined> {
    const { client, sessionId, log } = this.#parts
    const { toolCallId, ...form } = request
    const sent = {
      ...{ mode: 'form', sessionId, ...form },
      ...(toolCallId === undefined ? {} : { toolCallId }),
    } as CreateElicitationRequest
    const waiting = client.request(methods.client.elicitation.create, sent, {
      ...{ cancellationSignal: signal, stopWaitingOnCancel: true },
    })
    return await settled(waiting, signal, log)
  }

  get readFile(): ((file: string) => Promise<string | undefined>) | undefined {
    const { client, sessionId, capabilities, log } = this.#parts
    if (capabilities.fs?.readTextFile !== true) return undefined
    return async (file) => {
      const signal = AbortSignal.timeout(readMs)
      const waiting = client.request(
        methods.client.fs.readTextFile,
        { sessionId, path: file },
        { cancellationSignal: signal, stopWaitingOnCancel: true },
      )
      return (await settled(waiting, signal, log))?.content
    }
  }

  get writeFile(): ((file: string, content: string) => Promise<boolean>) | undefined {
    const { client, sessionId, capabilities, log } = this.#parts
    if (capabilities.fs?.writeTextFile !== true) return undefined
    return async (file, content) => {
      const signal = AbortSignal.timeout(readMs)
      const waiting = client.request(
        methods.client.fs.writeTextFile,
        { sessionId, path: file, content },
        { cancellationSignal: signal, stopWaitingOnCancel: true },
      )
      return (await settled(waiting, signal, log)) !== undefined
    }
  }
}
