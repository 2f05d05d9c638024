// An editor that speaks version 2: the client side of the SDK's version 2 on the pipes of a real `caisson acp`.
import { Readable, Writable } from 'node:stream'
import {
  type ClientCapabilities,
  type ClientContext,
  type CreateElicitationRequest,
  type CreateElicitationResponse,
  client,
  methods,
  ndJsonStream,
  type RequestPermissionRequest,
  type RequestPermissionResponse,
  type SessionUpdate,
} from '@agentclientprotocol/sdk/experimental/v2'
import { expect } from 'vitest'
import type { Place } from '../../host/test/support/cli.ts'
import { type AcpProgram, judge, startProgram, vmFlags } from './support.ts'

export interface Editor2Options {
  readonly capabilities?: ClientCapabilities
  readonly permit?: (request: RequestPermissionRequest) => RequestPermissionResponse
  readonly fill?: (request: CreateElicitationRequest) => CreateElicitationResponse
  /** Options of `caisson acp`. */
  readonly flags?: readonly string[]
  /** The client side that has forks of sessions, which is not stable. */
  readonly client?: typeof client
}

export interface TestEditor2 {
  readonly agent: ClientContext
  readonly program: AcpProgram
  readonly updates: SessionUpdate[]
  readonly permissions: RequestPermissionRequest[]
  readonly forms: CreateElicitationRequest[]
  readonly faults: string[]
  said(): string
  /** States of the session, in their order. */
  states(): string[]
  close(): Promise<void>
}

export async function openEditor2(place: Place, options: Editor2Options = {}): Promise<TestEditor2> {
  const program = startProgram(place, [...(options.flags ?? vmFlags), '--unstable', 'v2'])
  const { stdin, stdout } = program.child
  const updates: SessionUpdate[] = []
  const permissions: RequestPermissionRequest[] = []
  const forms: CreateElicitationRequest[] = []
  const faults: string[] = []
  const stream = ndJsonStream(
    Writable.toWeb(stdin) as WritableStream<Uint8Array>,
    Readable.toWeb(stdout) as ReadableStream<Uint8Array>,
  )
  const { agent } = (options.client ?? client)({ name: 'test' })
    .onNotification(methods.client.session.update, ({ params }) => void updates.push(params.update))
    .onRequest(methods.client.session.requestPermission, async ({ params, signal }) => {
      permissions.push(params)
      const withdrawn = new Promise<RequestPermissionResponse>((resolve) =>
        signal.addEventListener('abort', () => resolve({ outcome: { outcome: 'cancelled' } })),
      )
      return options.permit?.(params) ?? (await withdrawn)
    })
    .onRequest(methods.client.elicitation.create, ({ params }) => {
      forms.push(params)
      return options.fill?.(params) ?? { action: 'cancel' }
    })
    .connect({
      writable: stream.writable,
      readable: stream.readable.pipeThrough(judge(faults, 2, options.client !== undefined)),
    })
  const answer = await agent.request(methods.agent.initialize, {
    protocolVersion: 2,
    info: { name: 'test-editor', version: '1' },
    capabilities: options.capabilities ?? {},
  })
  expect(answer.protocolVersion).toBe(2)
  return {
    ...{ agent, program, updates, permissions, forms, faults },
    said: () => updates.map((update) => textOf(update)).join(''),
    states: () =>
      updates.flatMap((update) =>
        update.sessionUpdate === 'state_update'
          ? [[update.state, 'stopReason' in update ? update.stopReason : undefined].filter(Boolean).join(' ')]
          : [],
      ),
    close: async () => {
      stdin.end()
      await program.ended
    },
  }
}

function textOf(update: SessionUpdate): string {
  if (update.sessionUpdate !== 'agent_message_chunk') return ''
  const { content } = update as { readonly content: { readonly text?: string } }
  return content.text ?? ''
}

/** Chooses the first option with one of these names or kinds. */
export function choose2(...wanted: readonly string[]): NonNullable<Editor2Options['permit']> {
  return ({ options }) => {
    const option = options.find(({ name, kind }) => wanted.includes(name) || wanted.includes(kind))
    return option === undefined
      ? { outcome: { outcome: 'cancelled' } }
      : { outcome: { outcome: 'selected', optionId: option.optionId } }
  }
}

export async function newSession2({ agent }: TestEditor2, cwd: string): Promise<string> {
  return (await agent.request(methods.agent.session.new, { cwd })).sessionId
}

/** Sends a prompt. @returns the ID of its message, and how the work ended */
export async function ask2(editor: TestEditor2, sessionId: string, text: string): Promise<[string, string]> {
  const before = editor.states().length
  const prompt = [{ type: 'text' as const, text }]
  const { messageId } = await editor.agent.request(methods.agent.session.prompt, { sessionId, prompt })
  const ends = () =>
    editor
      .states()
      .slice(before)
      .find((state) => state.startsWith('idle'))
  await expect.poll(ends, { timeout: 60_000 }).toBeDefined()
  return [messageId, ends() ?? '']
}
