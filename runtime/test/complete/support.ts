// A scripted model behind the library's own requests, with a few tools of an application.
import * as z from 'zod'
import { type CompleteEvent, type CompleteRequest, type CompleteResult, createRuntime } from '../../index.ts'
import { createScriptedModel, type ScriptedReply } from '../../testing/index.ts'

const parameters = z.strictObject({ at: z.number().optional() })

export function prepare(replies: readonly ScriptedReply[], more: Partial<CompleteRequest> = {}) {
  const model = createScriptedModel({ replies })
  const executed: string[] = []
  const tool = (name: string, rest: object = {}) => ({
    description: name,
    parameters,
    execute: () => {
      executed.push(name)
      return `${name} done`
    },
    ...rest,
  })
  const tools = {
    look: tool('look', { readOnly: true }),
    save: tool('save', { evidence: 'write' }),
    call: tool('call'),
    fails: tool('fails', {
      execute: () => {
        throw new Error('disk full')
      },
    }),
    own: { description: 'own', parameters },
  }
  const runtime = createRuntime({ providers: { scripted: model.provider } })
  const request: CompleteRequest = {
    provider: 'scripted',
    model: 'm',
    messages: [{ role: 'user', content: 'Go.' }],
    tools,
    ...more,
  }
  return { model, runtime, request, executed, tools }
}

export async function readAll(
  stream: AsyncGenerator<CompleteEvent, CompleteResult>,
): Promise<{ events: CompleteEvent[]; result: CompleteResult }> {
  const events: CompleteEvent[] = []
  for (;;) {
    const next = await stream.next()
    if (next.done === true) return { events, result: next.value }
    events.push(next.value)
  }
}
