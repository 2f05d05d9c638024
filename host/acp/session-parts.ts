/** What a session is made of, and the options of the runs that it starts. */
import { capabilitiesOf } from '#specs/node/provider-quirks/capabilities.ts'
import type { CleanText } from '#specs/protocol/shown-text.ts'
import type { Host, RunOptions } from '../index.ts'
import type { Editor } from './editor.ts'
import { metadataKeys } from './history.ts'
import type { TakenServers } from './mcp-servers.ts'
import type { Task } from './prompt.ts'
import type { SessionSettings } from './settings.ts'
import type { Carrier } from './turn.ts'
import { thought } from './updates.ts'

/** How a session starts runs outside of this process. */
export interface RunStarter extends Carrier {
  /** @returns the id of the run. @throws {CaissonError} where there is none */
  readonly start: (options: RunOptions) => Promise<string>
}

export interface SessionParts {
  readonly id: string
  /** The workspace: an absolute path. */
  readonly directory: string
  readonly host: Host
  readonly runs: RunStarter
  readonly editor: Editor
  readonly words: CleanText
  readonly by: string
  readonly log: (line: string) => void
  /** Options of every run, such as the size of its VM. */
  readonly options: Pick<RunOptions, 'vm'>
  /** MCP servers of the editor. */
  readonly mcp: TakenServers
}

/** What a person types for the session itself. */
export const commands = [
  { name: 'apply', description: 'Apply the changes of the last turn, except flagged paths and conflicts' },
  { name: 'run', description: 'Carry out the plan of the last turn' },
  { name: 'undo', description: 'Undo what was applied of the last turn' },
]

/** Of a session's own command. */
export const noTask: Task = { prompt: '', images: [], context: {}, contents: {}, mentioned: [], notes: [] }

/** What {@link RunStarter.start} gets. */
export function runOptionsOf(
  parts: SessionParts,
  { mode, model, effort }: SessionSettings,
  task: Task,
  { last, planFrom }: { readonly last: string | undefined; readonly planFrom: string | undefined },
): RunOptions {
  const { id, directory, editor, options, mcp } = parts
  const { prompt, images, context, contents } = task
  return {
    ...{ prompt, images, context, workspace: directory },
    ...(Object.keys(contents).length === 0 ? {} : { files: { contents } }),
    ...(model === undefined ? {} : { model }),
    ...(effort === undefined ? {} : { effort }),
    ...(last === undefined ? {} : { continue: last }),
    ...(planFrom !== undefined
      ? { plan: { from: planFrom } }
      : mode === 'plan'
        ? { plan: { only: true } }
        : {}),
    metadata: { [metadataKeys.session]: id, [metadataKeys.mode]: mode },
    approvals: { interactive: true },
    ...(Object.keys(mcp.servers).length === 0 ? {} : { extensions: { mcpServers: mcp.servers } }),
    vm: { ...options.vm, keep: true },
    onNotes: (notes) => void editor.tell(notes.map((note) => thought(`${note}\n\n`))).catch(() => undefined),
  }
}

/** Why the model of the next run gets no images, as far as is known. */
export async function refuseImages(host: Host, { model }: SessionSettings): Promise<string | undefined> {
  const choice = await host.provider(model === undefined ? {} : { model })
  if (choice.baseUrl === null) return 'the offline model does not see images; choose another model'
  const { maxImages = capabilitiesOf(choice.model).maxImages } = choice
  return maxImages > 0
    ? undefined
    : `as far as is known, ${choice.model} does not see images; choose another model, or set models."${choice.model}".maxImages in the configuration`
}
