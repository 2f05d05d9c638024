/** An editor in this process: the client side of the SDK over streams of the test, and what the agent's side has of it. */

import { readFileSync, writeFileSync } from 'node:fs'
import { PassThrough, Readable, Writable } from 'node:stream'
import {
  type AnyMessage,
  agent,
  type ClientCapabilities,
  type CreateElicitationRequest,
  type CreateElicitationResponse,
  client,
  methods,
  ndJsonStream,
  type RequestPermissionRequest,
  type RequestPermissionResponse,
  type SessionUpdate,
} from '@agentclientprotocol/sdk'
import { onTestFinished } from 'vitest'
import type { CleanText } from '#specs/protocol/shown-text.ts'
import { serveAcp } from '../../acp/agent.ts'
import { Version1Editor } from '../../acp/version-1-editor.ts'
import { sanitizeLine, sanitizeWhole } from '../../cli/render/sanitize.ts'
import type { Host, RunOptions } from '../../index.ts'

export const words: CleanText = { line: sanitizeLine, block: (text) => sanitizeWhole(text, '') }

export interface NearEditorOptions {
  readonly capabilities?: ClientCapabilities
  readonly permit?: (
    request: RequestPermissionRequest,
  ) => RequestPermissionResponse | Promise<RequestPermissionResponse>
  readonly fill?: (request: CreateElicitationRequest) => CreateElicitationResponse
  /** Texts that it has open and not saved, by absolute path. Given: it reads and writes files. */
  readonly unsaved?: Map<string, string>
}

/** As editors do: a text that is written is saved. */
export const filesOf = (unsaved: Map<string, string>) => ({
  read: (file: string) => unsaved.get(file) ?? readFileSync(file, 'utf8'),
  write: (file: string, content: string) => {
    unsaved.delete(file)
    writeFileSync(file, content)
  },
})

/** Call it from within a test. */
export function openNearEditor({ permit, fill, unsaved, ...options }: NearEditorOptions = {}) {
  const fs = unsaved === undefined ? {} : { fs: { readTextFile: true, writeTextFile: true } }
  const capabilities = { ...fs, ...options.capabilities }
  const files = filesOf(unsaved ?? new Map())
  const written: string[] = []
  const [toAgent, toClient] = [new TransformStream<AnyMessage>(), new TransformStream<AnyMessage>()]
  const updates: SessionUpdate[] = []
  const permissions: RequestPermissionRequest[] = []
  const forms: CreateElicitationRequest[] = []
  client({ name: 'test' })
    .onNotification(methods.client.session.update, ({ params }) => void updates.push(params.update))
    .onRequest(methods.client.session.requestPermission, async ({ params }) => {
      permissions.push(params)
      return (await permit?.(params)) ?? { outcome: { outcome: 'cancelled' } }
    })
    .onRequest(methods.client.elicitation.create, ({ params }) => {
      forms.push(params)
      return fill?.(params) ?? { action: 'cancel' }
    })
    .onRequest(methods.client.fs.readTextFile, ({ params }) => ({ content: files.read(params.path) }))
    .onRequest(methods.client.fs.writeTextFile, ({ params }) => {
      written.push(params.path)
      files.write(params.path, params.content)
      return {}
    })
    .connect({ readable: toClient.readable, writable: toAgent.writable })
  const connection = agent({ name: 'test' }).connect({
    readable: toAgent.readable,
    writable: toClient.writable,
  })
  onTestFinished(() => connection.close())
  const editor = new Version1Editor({
    ...{ client: connection.client, sessionId: 'session-1', capabilities },
    log: () => undefined,
  })
  const said = () =>
    updates
      .map((update) =>
        update.sessionUpdate === 'agent_message_chunk' && update.content.type === 'text'
          ? update.content.text
          : '',
      )
      .join('')
  return { editor, updates, permissions, forms, said, written }
}

/** `caisson acp` in this process, which starts no run. Call it from within a test. */
export async function serveNear(
  host: Host,
  start: (options: RunOptions) => Promise<string>,
  onUpdate: (update: SessionUpdate) => void = () => undefined,
) {
  const [toAgent, toClient] = [new PassThrough(), new PassThrough()]
  const none = () => Promise.reject(new Error('no run is started here'))
  const served = serveAcp({
    ...{ host, words, input: toAgent, output: toClient, version: '0.0.0', log: () => undefined, options: {} },
    runs: { start, follow: none, wake: none },
  })
  const { agent } = client({ name: 'test' })
    .onNotification(methods.client.session.update, ({ params }) => onUpdate(params.update))
    .connect(
      ndJsonStream(
        Writable.toWeb(toAgent) as WritableStream<Uint8Array>,
        Readable.toWeb(toClient) as ReadableStream<Uint8Array>,
      ),
    )
  onTestFinished(async () => {
    toAgent.end()
    await served
  })
  await agent.request(methods.agent.initialize, { protocolVersion: 1, clientCapabilities: {} })
  return agent
}
