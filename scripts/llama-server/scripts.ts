/**
 * Answers of the scripted model, by the name with which the chat template starts it. They drive a whole run: plan,
 * look, write, answer.
 */

function toolCall(name: string, callArguments: unknown): string {
  return `<tool_call>\n{"name": "${name}", "arguments": ${JSON.stringify(callArguments)}}\n</tool_call>`
}

/** Long enough that a reader can leave midway; every number is one piece. */
const counting = Array.from({ length: 1_500 }, (_, index) => `n${index + 1}`).join(' ')

export const scripts: Readonly<Record<string, string>> = {
  chat: '<think>\nThe user greets me, so a short greeting is right.\n</think>\n\nHello from a real server: naïve café 日本語 🙂 done',
  long: `Counting: ${counting} end`,
  plan: `<think>\nTwo steps will do: first look around, then write.\n</think>\n\n${toolCall('submit_plan', {
    goal: 'A greeting stands in hello.txt',
    steps: [
      {
        id: 'look',
        title: 'Look around',
        instructions: 'Say what the workspace holds.',
        needs: [],
        writes: [],
      },
      {
        id: 'greet',
        title: 'Write the greeting',
        instructions: 'Write hello.txt with a greeting.',
        needs: ['look'],
        writes: ['hello.txt'],
      },
    ],
  })}`,
  look: toolCall('run_bash', { command: 'ls -la && uname -m' }),
  write: `<think>\nThe file is small, so I write it whole.\n</think>\n\n${toolCall('write_file', {
    path: 'hello.txt',
    content: 'Hello, été!\nline "two"\n',
  })}`,
  both: `${toolCall('read_file', { path: 'README.md' })}\n${toolCall('list_files', { path: 'src' })}`,
  final: 'The tool answered, so this step is finished.',
}
