// Agents that speak A2A: the client of its SDK before a served host, and messages as it sends them.
import { randomUUID } from 'node:crypto'
import {
  type Part,
  Role,
  type SendMessageRequest,
  type StreamResponse,
  type Task,
  TaskState,
} from '@a2a-js/sdk'
import {
  type Client,
  ClientFactory,
  createAuthenticatingFetchWithRetry,
  JsonRpcTransportFactory,
} from '@a2a-js/sdk/client'

/** Finds the agent by its card, as any client does; the card needs no key, its interface does. */
export async function callingAgent(url: string, secret: string): Promise<Client> {
  const headers = async () => ({ authorization: `Bearer ${secret}` })
  const fetchImpl = createAuthenticatingFetchWithRetry(fetch, {
    headers,
    shouldRetryWithHeaders: async () => undefined,
  })
  const factory = new ClientFactory({ transports: [new JsonRpcTransportFactory({ fetchImpl })] })
  return await factory.createFromUrl(url)
}

export interface Said {
  readonly taskId?: string
  readonly contextId?: string
  readonly messageId?: string
  readonly returnImmediately?: boolean
  /** Settings of a new run. */
  readonly caisson?: object
}

export function messageOf(
  given: string | readonly Part[],
  {
    taskId = '',
    contextId = '',
    messageId = `message-${randomUUID()}`,
    returnImmediately = false,
    caisson,
  }: Said = {},
): SendMessageRequest {
  const parts = typeof given === 'string' ? [textPart(given)] : [...given]
  return {
    tenant: '',
    message: {
      ...{ messageId, taskId, contextId, role: Role.ROLE_USER, parts },
      ...{ metadata: undefined, extensions: [], referenceTaskIds: [] },
    },
    configuration: { acceptedOutputModes: [], taskPushNotificationConfig: undefined, returnImmediately },
    metadata: caisson === undefined ? undefined : { caisson },
  }
}

export function textPart(value: string): Part {
  return { content: { $case: 'text', value }, metadata: undefined, filename: '', mediaType: '' }
}

export function dataPart(value: unknown): Part {
  return { content: { $case: 'data', value }, metadata: undefined, filename: '', mediaType: '' }
}

export const stateOf = ({ status }: Pick<Task, 'status'>): string => TaskState[status?.state ?? 0] ?? ''

/** The data of what a task asks: the ID of each question and the form of its answer. */
export function questionsOf({
  status,
}: Pick<Task, 'status'>): { questionId: string; answerSchema?: object }[] {
  return (status?.message?.parts ?? []).flatMap(({ content }) =>
    content?.$case === 'data' ? [content.value as { questionId: string }] : [],
  )
}

export function textsOf(parts: readonly Part[] = []): string[] {
  return parts.flatMap(({ content }) => (content?.$case === 'text' ? [content.value] : []))
}

export async function allOf(stream: AsyncIterable<StreamResponse>): Promise<StreamResponse[]> {
  const got: StreamResponse[] = []
  for await (const item of stream) got.push(item)
  return got
}

/** The kinds of the messages of a stream, with states. */
export function kindsOf(items: readonly StreamResponse[]): string[] {
  return items.map(({ payload }) => {
    const status =
      payload?.$case === 'task' || payload?.$case === 'statusUpdate' ? stateOf(payload.value) : ''
    return `${payload?.$case} ${status}`.trim()
  })
}
