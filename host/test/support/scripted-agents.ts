/** A model with turns of its own for each agent of a run, and a bench whose runs ask it. */
import { reply } from '#specs/testing/model-replies.ts'
import { type Asked, type Script, type ServerReply, startModelServer } from '#specs/testing/model-server.ts'
import { type TestBench, testBench } from './runs.ts'

type Turn = ServerReply | ((asked: Asked) => ServerReply | Promise<ServerReply>)
export const call = (name: string, input: unknown): { name: string; arguments: unknown } => ({
  name,
  arguments: input,
})
export const say = (text: string): ServerReply => reply({ text })
export const bash = (command: string): ServerReply => reply({ calls: [call('run_bash', { command })] })
export const spawn = (brief: string, more: object = {}): { name: string; arguments: unknown } =>
  call('spawn_agent', { brief, name: brief.toLowerCase(), ...more })
export const plan = (...steps: object[]): ServerReply =>
  reply({ calls: [call('submit_plan', { goal: 'Share the work', steps })] })
export const lastSaid = (asked: Asked): string => asked.messages.at(-1)?.content ?? ''

/** Each agent, known by the word in capitals with which its instructions begin, has turns of its own. */
export function byInstructions(
  planned: ServerReply,
  scripts: Readonly<Record<string, readonly Turn[]>>,
): Script {
  const turns = new Map<string, number>()
  return (asked) => {
    const user = asked.messages.find(({ role }) => role === 'user')?.content ?? ''
    const word = /<instructions>\n(?:.*\n\n)?([A-Z]{2,})/.exec(user)?.[1]
    if (word === undefined) return planned
    const turn = turns.get(word) ?? 0
    turns.set(word, turn + 1)
    const chosen = scripts[word]?.[turn] ?? say(`${word} is done`)
    return typeof chosen === 'function' ? chosen(asked) : chosen
  }
}

export async function benchWith(
  script: Script,
  files: Readonly<Record<string, string>>,
): Promise<TestBench & AsyncDisposable> {
  const server = await startModelServer(script)
  const bench = await testBench(files, {
    CAISSON_LLM_URL: server.baseUrl,
    CAISSON_LLM_KEY: 'sk-some-key-of-the-test',
    CAISSON_MODEL: 'scripted',
  })
  return { ...bench, [Symbol.asyncDispose]: () => server[Symbol.asyncDispose]() }
}
