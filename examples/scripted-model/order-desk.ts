/** A small application on `caisson/runtime`: a tool over some orders, and a workflow in which a model answers by it. */
import { type LLMChatMessage, type LLMToolCall, type RunTurnLoopOptions, runTurnLoop } from 'caisson/runtime'

const orders = new Map([
  ['A-17', { item: 'lamp', state: 'shipped' }],
  ['A-18', { item: 'chair', state: 'waiting for wood' }],
])

/** The tool: what it gives is what the model gets. */
export function findOrder({ id }: { id?: unknown }): string {
  const order = typeof id === 'string' ? orders.get(id) : undefined
  return order === undefined ? `there is no order ${JSON.stringify(id)}` : JSON.stringify(order)
}

type CallModel = NonNullable<RunTurnLoopOptions<LLMChatMessage[]>['callModel']>

/** The workflow: asks the model, carries its calls out, until it answers. Undefined when it never does. */
export async function answerCustomer(question: string, callModel: CallModel): Promise<string | undefined> {
  const { response, reason } = await runTurnLoop<LLMChatMessage[]>({
    initialState: [
      {
        role: 'system',
        content: 'You answer customers of a furniture shop. Look orders up with find_order.',
      },
      { role: 'user', content: question },
    ],
    callModel,
    buildMessages: ({ state }) => state,
    onTextResponse: ({ state, response: { assistantMessage } }) => ({ state: [...state, assistantMessage] }),
    onToolCallsResponse: ({ state, response: { assistantMessage, tool_calls = [] } }) => ({
      state: [...state, assistantMessage, ...tool_calls.map(carryOut)],
      next: { control: 'continue' },
    }),
  })
  return reason === 'text_response' ? response?.content : undefined
}

function carryOut(call: LLMToolCall): LLMChatMessage {
  const content =
    call.function.name === 'find_order' ? findOrder(readArguments(call)) : 'there is no such tool'
  return { role: 'tool', tool_call_id: call.id, content }
}

function readArguments(call: LLMToolCall): { id?: unknown } {
  try {
    return JSON.parse(call.function.arguments) ?? {}
  } catch {
    return {}
  }
}
