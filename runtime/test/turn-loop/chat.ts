/** A small application on the turn loop: a transcript, tools that answer at once, a model that plays a script. */
import type { LLMChatMessage, LLMResponse } from '../../contract/contract.ts'
import type { RunTurnLoopOptions } from '../../index.ts'
import { calls, createScriptedModel, type ScriptedReply, text } from '../../testing/index.ts'

export { calls, text }

export interface Chat {
  readonly messages: readonly LLMChatMessage[]
  readonly finalText: string
}

export type ChatOptions = RunTurnLoopOptions<Chat>

export interface ChatSetting extends Partial<ChatOptions> {
  /** What a call gives; default its own arguments. */
  readonly execute?: (name: string, args: string) => string | Promise<string>
  /** Whether the guard learns the results; default not. */
  readonly reportResults?: boolean
}

/** Options of a loop over these replies, and the model with what it was asked. */
export function chat(replies: readonly ScriptedReply[], setting: ChatSetting = {}) {
  const { execute = (_, args) => args, reportResults = false, ...overrides } = setting
  const model = createScriptedModel({ replies })
  const executed: string[] = []
  const options: ChatOptions = {
    initialState: { messages: [{ role: 'user', content: 'Go.' }], finalText: '' },
    callModel: model.callModel,
    buildMessages: ({ state, transientInstruction }) =>
      transientInstruction === undefined
        ? state.messages
        : [...state.messages, { role: 'system', content: transientInstruction }],
    onTextResponse: ({ state, response, responseText }) => ({
      state: { messages: [...state.messages, response.assistantMessage], finalText: responseText },
    }),
    onToolCallsResponse: async ({ state, response }) => {
      const results = await Promise.all(
        (response.tool_calls ?? []).map(async (call) => {
          executed.push(call.function.name)
          const content = await execute(call.function.name, call.function.arguments)
          return { toolCallId: call.id, content }
        }),
      )
      const told = results.map(
        ({ toolCallId, content }): LLMChatMessage => ({ role: 'tool', tool_call_id: toolCallId, content }),
      )
      return {
        state: { ...state, messages: [...state.messages, response.assistantMessage, ...told] },
        next: { control: 'continue' },
        ...(reportResults ? { toolResults: results } : {}),
      }
    },
    ...overrides,
  }
  return { options, model, executed, requests: model.requests }
}

/** A call of `name`; the arguments make it the same call or another one. */
export const call = (name: string, args: unknown = {}): ScriptedReply => calls({ name, arguments: args })

/** `reply` as often as said. */
export const times = (count: number, ...replies: ScriptedReply[]): ScriptedReply[] =>
  Array.from({ length: count }, () => replies).flat()

export function textResponse(content: string): LLMResponse {
  return { type: 'text', content, assistantMessage: { role: 'assistant', content }, stopKind: 'natural' }
}
