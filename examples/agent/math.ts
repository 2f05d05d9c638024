/** Calculates by an agent. The argument `vm` carries the goals out in a VM. */
import { Agent } from 'caisson/agent'

const goals = ['Calculate the result of (100 + 50) * 2', 'Calculate 2 ** 100', 'Calculate 15% of 80']

await using agent = new Agent({ vm: process.argv.includes('vm') })
for (const goal of goals) {
  const { status, output, trace } = await agent.run(goal, { tools: ['math'] })
  console.log(`${goal}\n  ${status}: ${output}`)
  for (const { step, tool, input, output: result, error } of trace)
    console.log(`  ${step}. ${tool} ${JSON.stringify(input)} gave ${error ?? JSON.stringify(result)}`)
  if (status === 'error') process.exitCode = 1
}
