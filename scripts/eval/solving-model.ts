/** For tests of the evaluation: a model server that knows the solutions, and writes that of the task it is asked for. */
import { reply } from '../../specs/testing/model-replies.ts'
import { type ModelServer, startModelServer } from '../../specs/testing/model-server.ts'
import { suite } from './suite.ts'

/** @param unsolved names of tasks that it answers with words alone */
export async function startSolvingModel(unsolved: readonly string[] = []): Promise<ModelServer> {
  return await startModelServer(({ messages }) => {
    const isFirst = messages.every(({ role }) => role !== 'assistant')
    const task = suite.find(({ prompt }) =>
      messages.some(({ content }) => content?.includes(prompt) === true),
    )
    if (!isFirst || task === undefined || unsolved.includes(task.name)) return reply({ text: 'It is done.' })
    const calls = Object.entries(task.solution).map(([path, content]) =>
      content === null
        ? { name: 'delete_file', arguments: { path } }
        : { name: 'write_file', arguments: { path, content } },
    )
    return reply({ calls })
  })
}

/** The variables with which a host in a state folder of its own asks this server. */
export function environmentFor(home: string, server: ModelServer): Record<string, string | undefined> {
  return {
    ...process.env,
    CAISSON_HOME: home,
    XDG_CONFIG_HOME: `${home}/config`,
    CAISSON_LLM_URL: server.baseUrl,
    CAISSON_LLM_KEY: 'sk-some-key',
    CAISSON_MODEL: 'scripted',
  }
}
