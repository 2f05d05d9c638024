/** How surfaces show text of others to a person, and in which words they say who asks. Each surface says it the same way. */

/** Untrusted text for a person's screen, without what hides or reorders it. */
export interface CleanText {
  /** One line. @param maxChars beyond it, the line is cut */
  line(text: string, maxChars?: number): string
  /** Lines as they are. */
  block(text: string): string
}

/** Who asks: as a question and the call that it is about name it. */
export interface Asker {
  /** `root`, or the path of a sub-agent; the agent's claim. */
  readonly agentPath: string
  /** MCP server that asks through the agent and gets the answer. Absent: the agent itself. */
  readonly server?: string | undefined
}

const serverMaxChars = 100

/** Such as `the MCP server shop, through the agent`: the subject of a sentence. */
export function nameOfAsker({ agentPath, server }: Asker, clean: CleanText): string {
  const agent = agentPath === 'root' ? 'the agent' : `the sub-agent ${clean.line(agentPath, 300)}`
  return server === undefined
    ? agent
    : `the MCP server ${clean.line(server, serverMaxChars)}, through ${agent},`
}

/** A sentence: whose words the question is in, and who gets the answer. */
export function sayWhoAsks(asker: Asker, clean: CleanText): string {
  const asks = `${capital(nameOfAsker(asker, clean))} asks you.`
  return asker.server === undefined ? asks : `${asks} That server gets your answer.`
}

/** Stands beside each question whose answer leaves the person's hands. */
export const noKeysHere = 'Do not enter passwords or keys.'

function capital(text: string): string {
  return `${text.slice(0, 1).toUpperCase()}${text.slice(1)}`
}
