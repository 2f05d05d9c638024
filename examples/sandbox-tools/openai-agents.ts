// OpenAI Agents: the agent's tools work in a Caisson VM.
import { Agent, OpenAIChatCompletionsModel, run, setTracingDisabled, tool } from '@openai/agents'
import OpenAI from 'openai'
import { instructions, type Job, main, sandboxTools } from './tools.ts'

async function work({ sandbox, prompt, baseURL, apiKey, model }: Job): Promise<string> {
  // Traces would be sent to OpenAI.
  setTracingDisabled(true)
  const { execute, read_file, write_file } = sandboxTools
  const agent = new Agent({
    name: 'worker',
    instructions,
    model: new OpenAIChatCompletionsModel(new OpenAI({ baseURL, apiKey }), model),
    tools: [
      tool({
        name: 'execute',
        description: execute.description,
        parameters: execute.parameters,
        execute: (input) => execute.run(sandbox, input),
      }),
      tool({
        name: 'read_file',
        description: read_file.description,
        parameters: read_file.parameters,
        execute: (input) => read_file.run(sandbox, input),
      }),
      tool({
        name: 'write_file',
        description: write_file.description,
        parameters: write_file.parameters,
        execute: (input) => write_file.run(sandbox, input),
      }),
    ],
  })
  const { finalOutput } = await run(agent, prompt)
  return finalOutput ?? ''
}

await main(work)
