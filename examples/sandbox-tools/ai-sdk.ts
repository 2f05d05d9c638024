// AI SDK: the model's tools work in a Caisson VM.
import { createOpenAICompatible } from '@ai-sdk/openai-compatible'
import { generateText, isStepCount, tool } from 'ai'
import { instructions, type Job, main, sandboxTools } from './tools.ts'

async function work({ sandbox, prompt, baseURL, apiKey, model }: Job): Promise<string> {
  const { execute, read_file, write_file } = sandboxTools
  const { text } = await generateText({
    model: createOpenAICompatible({ name: 'server', baseURL, apiKey })(model),
    instructions,
    prompt,
    stopWhen: isStepCount(20),
    tools: {
      execute: tool({
        description: execute.description,
        inputSchema: execute.parameters,
        execute: (input) => execute.run(sandbox, input),
      }),
      read_file: tool({
        description: read_file.description,
        inputSchema: read_file.parameters,
        execute: (input) => read_file.run(sandbox, input),
      }),
      write_file: tool({
        description: write_file.description,
        inputSchema: write_file.parameters,
        execute: (input) => write_file.run(sandbox, input),
      }),
    },
  })
  return text
}

await main(work)
