/** Loads workflow files and publishes them: reads them with bounds and checks them whole before anything runs. */
import { CaissonError } from '#specs/errors.ts'
import type { WorkspaceData } from '#specs/node/workflow/workspace-data.ts'
import {
  findStored,
  findWorkflow,
  isStoreReference,
  loadWhole,
  requireReference,
  usesWorkflow,
} from './load-parts.ts'
import { type ListedWorkflow, listFolder, loadFile, parseWorkflow, WorkflowError } from './workflow-file.ts'
import {
  isStore,
  listStored,
  putStored,
  removeStored,
  type StoredWorkflow,
  storeExpected,
  type WorkflowStore,
} from './workflow-store.ts'

export { describeProblem, type ListedWorkflow, WorkflowError } from './workflow-file.ts'

export interface WorkspaceManagerOptions {
  /** Where `AGENT@VERSION` is looked up if no folder has it, such as `host.workflows`. Default: nowhere. */
  readonly store?: WorkflowStore
}

export class WorkspaceManager {
  readonly #store: WorkflowStore | undefined

  /** @throws {CaissonError} `invalid_options` for what is no store */
  constructor({ store }: WorkspaceManagerOptions = {}) {
    if (store !== undefined && !isStore(store))
      throw new CaissonError('invalid_options', `store: ${storeExpected}`)
    this.#store = store
  }

  /**
   * A workflow with the steps and functions that it takes of others.
   * @param file a path, relative to the current directory, a `file:` URL, or `AGENT@VERSION` of the store
   * @throws {WorkflowError} @throws {CaissonError} `state_unavailable` when the store fails
   */
  async load(file: string | URL): Promise<WorkspaceData> {
    const { data, folder } = await findWorkflow(file, this.#store)
    return (await loadWhole(data, { folder, store: this.#store })).data
  }

  /**
   * A workflow that a caller sent; reads no file. What it takes of others is still to be taken.
   * @param text of a workflow file, or `AGENT@VERSION` of the store
   * @throws {WorkflowError} @throws {CaissonError} `state_unavailable` when the store fails
   */
  async find(text: string): Promise<WorkspaceData> {
    if (!isStoreReference(text)) return this.parse(text)
    return (await findStored(text, this.#requireStore())).workflow
  }

  /**
   * Checks text alone: what it takes of others is still to be taken.
   * @param name of the text, for errors @throws {WorkflowError}
   */
  parse(text: string, name = 'the workflow'): WorkspaceData {
    return parseWorkflow(text, name)
  }

  /** A copy of a workflow of the application, checked as a file is. @throws {WorkflowError} */
  check(data: WorkspaceData): WorkspaceData {
    let text: string
    try {
      text = JSON.stringify(fileOf(data))
    } catch (cause) {
      throw new WorkflowError('the workflow must be a path, a file: URL, or a WorkspaceData', [], { cause })
    }
    return this.parse(text)
  }

  /**
   * The files of a folder that are named `*.workflow.json`, `.yaml` or `.yml`, sorted. One that has problems is listed with
   * them.
   * @throws {WorkflowError} when the folder cannot be read
   */
  async list(folder: string | URL): Promise<ListedWorkflow[]> {
    return await listFolder(folder)
  }

  /**
   * Puts a file into the store, under its agent and version. All that it names must be in the store already. The same content
   * may be published again; other content needs a new version.
   * @throws {WorkflowError} @throws {CaissonError} `state_unavailable` when the store fails
   */
  async publish(file: string | URL): Promise<StoredWorkflow> {
    const store = this.#requireStore()
    const loaded = await loadFile(file)
    await loadWhole(loaded.workflow, { folder: null, store })
    return await putStored(store, loaded)
  }

  /**
   * Removes a workflow from the store. Runs that use it keep their copy; then other content may be published under its name.
   * @param name `AGENT@VERSION`
   * @throws {WorkflowError} where the store does not have it, or another workflow there uses it
   * @throws {CaissonError} `state_unavailable` when the store fails; `invalid_options` where it removes none
   */
  async remove(name: string): Promise<void> {
    const reference = requireReference(name)
    await removeStored(this.#requireStore(), reference, (other) => usesWorkflow(other, name))
  }

  /** What the store has, by name and version. @throws {CaissonError} `state_unavailable` when it fails */
  async listStored(): Promise<StoredWorkflow[]> {
    return await listStored(this.#requireStore())
  }

  #requireStore(): WorkflowStore {
    if (this.#store === undefined)
      throw new CaissonError('invalid_options', 'this WorkspaceManager was made without a store', {
        remedy: 'pass one: new WorkspaceManager({ store: host.workflows })',
      })
    return this.#store
  }
}

/** The workflow in the form of a file. */
function fileOf(data: WorkspaceData): object {
  const { agent, version, steps, functions, taken = [], description, input, result } = data
  const name = `${agent}@${version}`
  const list = {
    steps: steps.map(({ id, name: title }) => ({ id, name: title })),
    description,
    input,
    result,
  }
  return Object.fromEntries([
    [`${name}#details`, list],
    ...steps.map(({ id, details }) => [`${name}@step-${id}#details`, details]),
    ...functions.map((one) => [`${name}@func-${one.name}#details`, one]),
    ...taken.map(({ name: own, ...details }) => [`${name}@func-${own}#details`, details]),
  ])
}
