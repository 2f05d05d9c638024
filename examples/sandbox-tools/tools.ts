// What a model may do in a Caisson VM, for any agent framework: run commands, read and write files. The changes reach the
// directory of the host only when a person applies them.
import { createInterface } from 'node:readline/promises'
import { CaissonError, Host, type Sandbox } from 'caisson'
import * as z from 'zod'

/** One tool for a model: its schema, and its work in the VM. */
export interface SandboxTool<Schema extends z.ZodObject = z.ZodObject> {
  readonly description: string
  readonly parameters: Schema
  run(sandbox: Sandbox, input: z.infer<Schema>): Promise<string>
}

/** A mistake of the model is an answer to it, so that it can do better; a lost VM ends the program. */
async function orSay(work: () => Promise<string>): Promise<string> {
  try {
    return await work()
  } catch (error) {
    const isMistake =
      error instanceof CaissonError &&
      ['file_not_found', 'invalid_options', 'limit_reached'].includes(error.code)
    if (!isMistake) throw error
    return `error: ${error.message}`
  }
}

const Path = z.string().describe('A path below /mnt/workspace, such as src/main.py')

function defineTool<Schema extends z.ZodObject>(tool: SandboxTool<Schema>): SandboxTool<Schema> {
  return tool
}

export const sandboxTools = {
  execute: defineTool({
    description: 'Runs a command with bash in /mnt/workspace and returns its output.',
    parameters: z.object({ command: z.string() }),
    run: (sandbox, { command }) =>
      orSay(async () => {
        const { exitCode, stdout, stderr } = await sandbox.exec(command, {
          timeoutMs: 120_000,
          maxOutputBytes: 16 * 1024,
        })
        return JSON.stringify({ exitCode, stdout, stderr })
      }),
  }),
  read_file: defineTool({
    description: 'Returns the text of a file.',
    parameters: z.object({ path: Path }),
    run: (sandbox, { path }) =>
      orSay(async () => new TextDecoder().decode(await sandbox.readFile(path, { maxBytes: 256 * 1024 }))),
  }),
  write_file: defineTool({
    description: 'Writes a file, and makes its directories.',
    parameters: z.object({ path: Path, content: z.string() }),
    run: (sandbox, { path, content }) =>
      orSay(async () => {
        await sandbox.writeFile(path, content)
        return `wrote ${path}`
      }),
  }),
}

/** The model to ask, and what to ask it. */
export interface Job {
  readonly sandbox: Sandbox
  readonly prompt: string
  readonly baseURL: string
  readonly apiKey: string
  readonly model: string
}

export const instructions =
  'You work on the files in /mnt/workspace of a Linux VM. Use the tools, and say in one sentence what you did.'

/**
 * Runs `agent` over a copy of the directory in a VM, and then asks whether to apply its changes to the directory.
 * The program's arguments are the directory and the prompt.
 */
export async function main(agent: (job: Job) => Promise<string>): Promise<void> {
  const [workspace, prompt] = process.argv.slice(2)
  const { OPENAI_BASE_URL: baseURL, OPENAI_API_KEY: apiKey = 'none', OPENAI_MODEL: model } = process.env
  try {
    if (workspace === undefined || prompt === undefined || baseURL === undefined || model === undefined)
      throw new Error('Pass a directory and a prompt, and set OPENAI_BASE_URL and OPENAI_MODEL.')
    await using host = new Host()
    await using sandbox = await host.sandbox({ workspace })
    console.log(await agent({ sandbox, prompt, baseURL, apiKey, model }))
    await applyChanges(sandbox, workspace)
  } catch (error) {
    // The whole error of a framework has the request, with the files that the model read.
    console.error(error instanceof Error ? error.message : error)
    process.exitCode = 1
  }
}

/** Applies nothing unless a person says yes. */
export async function applyChanges(sandbox: Sandbox, workspace: string): Promise<void> {
  const changes = await sandbox.changes()
  const items = await changes.review()
  if (items.length === 0) return
  for (const { change, path } of items) console.log(`${change} ${JSON.stringify(path)}`)
  using terminal = createInterface({ input: process.stdin, output: process.stdout })
  const answer = await terminal.question(`Apply these changes to ${workspace}? [y/N] `)
  if (!/^\s*y(?:es)?\s*$/i.test(answer)) return console.log('Nothing was applied.')
  const { applied } = await changes.apply('all')
  console.log(`Applied ${applied.length}.`)
}
