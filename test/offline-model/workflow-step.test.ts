// The offline model in a step of a workflow file, by the agent's own prompts.
import { describe, expect, it } from 'vitest'
import { workflowSystemPrompt } from '../../agent/context/prompts.ts'
import { describeOutput } from '../../agent/step/step-output.ts'
import { answerOffline } from '../../host/offline-model/upstream.ts'

function say(content: string, offered: readonly string[]) {
  return answerOffline({
    messages: [
      { role: 'system', content: `${workflowSystemPrompt(offered.length > 0)}\n\nYou are brief.` },
      { role: 'user', content: 'Delete a.txt' },
      { role: 'assistant', content: 'Deleted.' },
      { role: 'user', content },
    ],
    tools: offered.map((name) => ({ type: 'function', function: { name, parameters: {} } })),
  })
}

describe('the offline model in a step of a workflow', () => {
  it('carries out the last message of the chat [S4.06]', () => {
    const form = describeOutput({ type: 'object' })
    const { calls } = say(`Create b.txt with the content "hello"\n\n${form}`, ['write_file'])
    expect(calls).toMatchObject([{ name: 'write_file', arguments: { path: 'b.txt', content: 'hello' } }])
  })

  it('fails for words that no rule covers, and for a tool that the step does not have [S4.06]', () => {
    expect(say('Tell me a joke.', []).text).toMatch(
      /^STEP FAILED: \[offline model\] I could not do this task: not understood/,
    )
    expect(say('Create b.txt with the content "hello"', []).text).toMatch(
      /^STEP FAILED: .*needs the tool write_file/,
    )
  })
})
