/** What a session says to its editor and asks it. An answer that does not come, or is none, decides nothing. */
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
import { errorMessage } from '#specs/errors.ts'

/** The editor does not answer for this long: its file is taken as it is on the disk. */
const readMs = 5_000

export interface EditorParts {
  readonly client: AgentContext
  readonly sessionId: string
  readonly capabilities: ClientCapabilities
  readonly log: (line: string) => void
}

export class Editor {
  readonly #parts: EditorParts

  constructor(parts: EditorParts) {
    this.#parts = parts
  }

  get hasForms(): boolean {
    return (this.#parts.capabilities.elicitation?.form ?? null) !== null
  }

  async tell(updates: readonly SessionUpdate[]): Promise<void> {
    const { client, sessionId } = this.#parts
    for (const update of updates) await client.notify(methods.client.session.update, { sessionId, update })
  }

  /** Undefined: nothing was chosen. @param signal withdraws the question */
  async askPermission(
    request: Omit<RequestPermissionRequest, 'sessionId'>,
    signal: AbortSignal,
  ): Promise<RequestPermissionResponse | undefined> {
    const { client, sessionId } = this.#parts
    const waiting = client.request(
      methods.client.session.requestPermission,
      { ...request, sessionId },
      { cancellationSignal: signal, stopWaitingOnCancel: true },
    )
    return await this.#settled(waiting, signal)
  }

  /** Undefined: nobody answered. */
  async askForm(
    request: {
      readonly message: string
      readonly requestedSchema: object
      readonly toolCallId: string | undefined
    },
    signal: AbortSignal,
  ): Promise<CreateElicitationResponse | undefined> {
    const { client, sessionId } = this.#parts
    const { toolCallId, ...form } = request
    const sent = {
      ...{ mode: 'form', sessionId, ...form },
      ...(toolCallId === undefined ? {} : { toolCallId }),
    } as CreateElicitationRequest
    const waiting = client.request(methods.client.elicitation.create, sent, {
      ...{ cancellationSignal: signal, stopWaitingOnCancel: true },
    })
    return await this.#settled(waiting, signal)
  }

  /** Reads a file as the editor has it, saved or not. Undefined: the editor offers none. */
  get readFile(): ((file: string) => Promise<string | undefined>) | undefined {
    const { client, sessionId, capabilities } = this.#parts
    if (capabilities.fs?.readTextFile !== true) return undefined
    return async (file) => {
      const signal = AbortSignal.timeout(readMs)
      const waiting = client.request(
        methods.client.fs.readTextFile,
        { sessionId, path: file },
        { cancellationSignal: signal, stopWaitingOnCancel: true },
      )
      return (await this.#settled(waiting, signal))?.content
    }
  }

  /** Gives a file another text and saves it. Undefined: the editor offers none. @returns whether it did */
  get writeFile(): ((file: string, content: string) => Promise<boolean>) | undefined {
    const { client, sessionId, capabilities } = this.#parts
    if (capabilities.fs?.writeTextFile !== true) return undefined
    return async (file, content) => {
      const signal = AbortSignal.timeout(readMs)
      const waiting = client.request(
        methods.client.fs.writeTextFile,
        { sessionId, path: file, content },
        { cancellationSignal: signal, stopWaitingOnCancel: true },
      )
      return (await this.#settled(waiting, signal)) !== undefined
    }
  }

  async #settled<T>(waiting: Promise<T>, signal: AbortSignal): Promise<T | undefined> {
    try {
      return await waiting
    } catch (error) {
      if (!signal.aborted) this.#parts.log(`the editor did not answer: ${errorMessage(error)}`)
      return undefined
    }
  }
}
