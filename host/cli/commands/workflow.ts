/** `caisson workflow`: checks, draws, lists, publishes and removes workflow files. */
import { writeFile } from 'node:fs/promises'
import { CaissonError } from '#specs/errors.ts'
import { reasonOf } from '#specs/node/file-error.ts'
import { resolveFolders } from '../../state/folders.ts'
import { drawMermaid, drawSvg } from '../../workflows/draw.ts'
import { workflowJsonSchema } from '../../workflows/json-schema.ts'
import { findStored } from '../../workflows/load-parts.ts'
import { userStore } from '../../workflows/sqlite-store.ts'
import type { StoredWorkflow, WorkflowStore } from '../../workflows/workflow-store.ts'
import { describeProblem, WorkflowError, WorkspaceManager } from '../../workflows/workspace-manager.ts'
import { type ExitCode, exitCodes } from '../exit-codes.ts'
import type { Io } from '../io.ts'
import { colorsFor } from '../render/colors.ts'
import { writeJsonLine } from '../render/json-lines.ts'
import { sanitizeBlock, sanitizeLine } from '../render/sanitize.ts'

/** Prints every problem of the files, one in a line, as compilers do. */
export async function workflowCheck(
  io: Io,
  files: readonly string[],
  flags: { json?: boolean },
): Promise<ExitCode> {
  const manager = managerOf(io)
  let code: ExitCode = exitCodes.completed
  for (const file of files) {
    try {
      const { agent, version, steps, functions } = await manager.load(file)
      if (flags.json === true) await writeJsonLine(io.stdout, { file, ok: true, agent, version })
      else
        io.stdout.write(
          `${sanitizeLine(`${file}: ${agent}@${version}`)}: ${count(steps, 'step')}, ${count(functions, 'function')}, no problem\n`,
        )
    } catch (error) {
      if (!(error instanceof WorkflowError)) throw error
      if (error.problems.length === 0) throw error
      code = exitCodes.usage
      const { source = file } = error
      for (const problem of error.problems) {
        if (flags.json === true) await writeJsonLine(io.stdout, { file: source, ok: false, ...problem })
        else io.stdout.write(`${sanitizeLine(`${source}:${describeProblem(problem)}`, 1_000)}\n`)
      }
    }
  }
  return code
}

export async function workflowDraw(
  io: Io,
  file: string,
  flags: { svg?: boolean; output?: string },
): Promise<ExitCode> {
  const data = await managerOf(io).load(file)
  const drawing = flags.svg === true ? await drawSvg(data) : drawMermaid(data)
  if (flags.output === undefined) {
    // In a terminal, names of the file are escaped; a program gets the bytes.
    io.stdout.write(
      io.stdout.isTTY === true ? `${sanitizeBlock(drawing, '', Number.POSITIVE_INFINITY)}\n` : drawing,
    )
    return exitCodes.completed
  }
  await writeFile(flags.output, drawing, { flag: 'wx' }).catch((cause: unknown) => {
    throw new CaissonError('invalid_options', `cannot write ${flags.output}: ${reasonOf(cause)}`, { cause })
  })
  return exitCodes.completed
}

/** The files of a folder. Without one: those of the current directory, and what is published. */
export async function workflowList(
  io: Io,
  folder: string | undefined,
  flags: { json?: boolean },
): Promise<ExitCode> {
  const manager = managerOf(io)
  const workflows = await manager.list(folder ?? '.')
  const published = folder === undefined ? await manager.listStored() : []
  const colors = colorsFor(io.stdout)
  for (const { file, workflow, problems } of workflows) {
    if (flags.json === true) {
      const { agent = null, version = null } = workflow ?? {}
      await writeJsonLine(io.stdout, { file, agent, version, problems })
      continue
    }
    const [first] = problems
    const more = problems.length > 1 ? ` (and ${problems.length - 1} more)` : ''
    const what =
      workflow === null
        ? colors.yellow(`${sanitizeLine(first === undefined ? '' : describeProblem(first), 300)}${more}`)
        : `${sanitizeLine(`${workflow.agent}@${workflow.version}`)}  ${count(workflow.steps, 'step')}  ${colors.dim(sanitizeLine(workflow.description ?? ''))}`
    io.stdout.write(`${sanitizeLine(file)}  ${what.trimEnd()}\n`)
  }
  for (const { name, version, sha256 } of published) await showPublished(io, { name, version, sha256 }, flags)
  if (workflows.length + published.length === 0 && flags.json !== true)
    io.stdout.write(
      `No workflow here${folder === undefined ? ', and none is published' : ''}. Names of workflow files end in .workflow.json, .workflow.yaml or .workflow.yml.\n`,
    )
  return exitCodes.completed
}

export async function workflowPublish(
  io: Io,
  files: readonly string[],
  flags: { json?: boolean },
): Promise<ExitCode> {
  const manager = managerOf(io)
  for (const file of files) await showPublished(io, await manager.publish(file), flags)
  return exitCodes.completed
}

/** Prints the text as it was published. */
export async function workflowShow(io: Io, name: string): Promise<ExitCode> {
  const { text } = await findStored(name, storeOf(io))
  // In a terminal, text of the file is escaped; a program gets the bytes.
  io.stdout.write(io.stdout.isTTY === true ? `${sanitizeBlock(text, '', Number.POSITIVE_INFINITY)}\n` : text)
  return exitCodes.completed
}

/** Removes published workflows; stops at the first that it cannot remove. */
export async function workflowRemove(io: Io, names: readonly string[]): Promise<ExitCode> {
  const manager = managerOf(io)
  for (const name of names) {
    await manager.remove(name)
    io.stdout.write(`removed ${sanitizeLine(name)}\n`)
  }
  return exitCodes.completed
}

async function showPublished(io: Io, stored: StoredWorkflow, { json }: { json?: boolean }): Promise<void> {
  const { name: agent, version, sha256 } = stored
  if (json === true) await writeJsonLine(io.stdout, { file: null, agent, version, sha256 })
  else io.stdout.write(`${sanitizeLine(`${agent}@${version}`)}  published, SHA-256 ${sha256}\n`)
}

export function workflowSchema(io: Io): Promise<ExitCode> {
  io.stdout.write(`${JSON.stringify(workflowJsonSchema(), null, 2)}\n`)
  return Promise.resolve(exitCodes.completed)
}

function managerOf(io: Io): WorkspaceManager {
  return new WorkspaceManager({ store: storeOf(io) })
}

function storeOf(io: Io): WorkflowStore {
  return userStore(resolveFolders(io.env))
}

function count(list: readonly unknown[], noun: string): string {
  return `${list.length} ${noun}${list.length === 1 ? '' : 's'}`
}
