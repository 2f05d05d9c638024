// LangGraph: a graph of the model and its tools, which work in a Caisson VM.
import { HumanMessage, SystemMessage } from '@langchain/core/messages'
import { tool } from '@langchain/core/tools'
import { MessagesAnnotation, START, StateGraph } from '@langchain/langgraph'
import { ToolNode, toolsCondition } from '@langchain/langgraph/prebuilt'
import { ChatOpenAI } from '@langchain/openai'
import { instructions, type Job, main, sandboxTools } from './tools.ts'

async function work({ sandbox, prompt, baseURL, apiKey, model }: Job): Promise<string> {
  const { execute, read_file, write_file } = sandboxTools
  const tools = [
    tool((input) => execute.run(sandbox, input), {
      name: 'execute',
      description: execute.description,
      schema: execute.parameters,
    }),
    tool((input) => read_file.run(sandbox, input), {
      name: 'read_file',
      description: read_file.description,
      schema: read_file.parameters,
    }),
    tool((input) => write_file.run(sandbox, input), {
      name: 'write_file',
      description: write_file.description,
      schema: write_file.parameters,
    }),
  ]
  const asked = new ChatOpenAI({ model, apiKey, configuration: { baseURL } }).bindTools(tools)
  const graph = new StateGraph(MessagesAnnotation)
    .addNode('model', async ({ messages }) => ({ messages: [await asked.invoke(messages)] }))
    .addNode('tools', new ToolNode(tools))
    .addEdge(START, 'model')
    .addConditionalEdges('model', toolsCondition)
    .addEdge('tools', 'model')
    .compile()
  const { messages } = await graph.invoke({
    messages: [new SystemMessage(instructions), new HumanMessage(prompt)],
  })
  return messages.at(-1)?.text ?? ''
}

await main(work)
