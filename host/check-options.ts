/**
 * Checks what an application passes for a host or a run against schemas, before anything starts; names each
 * field that is wrong.
 */

import { Readable, Writable } from 'node:stream'
import * as z from 'zod'
import { ApprovalRule } from '#specs/protocol/approval.ts'
import { SectionName, SectionPlace, SectionTokens } from '#specs/protocol/context-section.ts'
import { EgressRule } from '#specs/protocol/egress.ts'
import { FileContents } from '#specs/protocol/file-contents.ts'
import { HookPoint } from '#specs/protocol/hook.ts'
import { RunMetadata, RunPriority, StartWithin } from '#specs/protocol/host-event.ts'
import { ImagePath, imagesMaxCount } from '#specs/protocol/image.ts'
import { plainMessages, plainMessagesWithoutValues } from '#specs/protocol/issue-text.ts'
import { limits } from '#specs/protocol/limits.ts'
import { Effort } from '#specs/protocol/plan.ts'
import { FallbackModels, StepModels } from '#specs/protocol/run-models.ts'
import { RunLimits } from '#specs/protocol/task.ts'
import { Document, Line } from '#specs/protocol/text.ts'
import { Config } from './config/schema.ts'
import { refuseUnreadable } from './egress/rules.ts'
import {
  checkArguments,
  copyOptions,
  type Names,
  OptionsError,
  problemsOf,
  readOptions,
  SignalOption,
} from './files/check-arguments.ts'
import type { HostOptions, HostQueueOptions, SandboxOptions } from './host-options.ts'
import type {
  ApprovalOptions,
  EgressOptions,
  FileSelection,
  PlanOptions,
  ResumeOptions,
  RunExtensions,
  RunOptions,
  RunQueueOptions,
} from './run-options.ts'
import { type AddedFolder, addedFoldersMax, folderName } from './runs/added-folders.ts'
import { VmError } from './vm/vm-error.ts'
import { type RunVmOptions, resolveSize, type VmOptions, type VmSize } from './vm/vm-options.ts'
import { isStore, storeExpected } from './workflows/workflow-store.ts'

export { OptionsError } from './files/check-arguments.ts'

const givenFunction = z.custom((value) => typeof value === 'function', 'expected a function')
const text = Line.min(1)
const size = (name: keyof VmSize) =>
  z.number().superRefine((value, context) => {
    const problem = findSizeProblem({ [name]: value })
    if (problem !== undefined) context.addIssue({ code: 'custom', message: problem })
  })

const VmSchema = z.strictObject({
  memoryBytes: size('memoryBytes').optional(),
  cpus: size('cpus').optional(),
  diskBytes: size('diskBytes').optional(),
  /** Read when the VM starts. */
  disk: z.custom((value) => typeof value === 'object' && value !== null, 'expected a disk image').optional(),
  accelerator: z.enum(['auto', 'kvm', 'hvf', 'tcg']).optional(),
  confine: z.enum(['auto', 'require']).optional(),
  start: z.enum(['auto', 'cold']).optional(),
})
const PoolVmSchema = VmSchema.omit({ start: true })
const RunVmSchema = VmSchema.extend({
  hibernateAfterMs: z.int().min(0).optional(),
  sleepAfterMs: z.int().min(0).optional(),
  recoveries: z.int().min(0).max(100).optional(),
  keep: z.boolean().optional(),
})

/** Functions are the application's own, so only what is read of a hook or a tool here is checked. */
const Hook = z.looseObject({
  point: HookPoint,
  run: givenFunction,
  name: z.string().optional(),
  tools: z.array(z.string()).optional(),
  timeoutMs: z.number().positive().optional(),
  onFailure: z.enum(['allow', 'deny']).optional(),
})
/** A tool of the application; its schema is read when it is offered. */
export const ToolOption = z.looseObject({
  description: z.string(),
  inputSchema: z.custom((value) => typeof value === 'object' && value !== null, 'expected a schema'),
  execute: givenFunction,
})

const toolChoice = 'expected true, false, a list of names, or a map from names to true or false'

const FolderSchema = z.strictObject({
  path: z
    .string()
    .min(1)
    .max(4_096)
    .refine((folder) => !folder.includes('\0'), 'expected a path without NUL'),
  name: z
    .string()
    .regex(folderName, 'expected 1 to 64 letters, digits, ".", "_" and "-"; the first is no "." or "-"')
    .refine(
      (name) => Buffer.byteLength(name) <= limits.nameMaxBytes,
      `expected at most ${limits.nameMaxBytes} bytes`,
    )
    .optional(),
})
const FilesSchema = z.strictObject({
  include: z.array(z.string().max(4_096)).max(1_000).optional(),
  acceptIgnoreRules: z.boolean().optional(),
  contents: FileContents.optional(),
})
const PlanSchema = z.strictObject({
  only: z.boolean().optional(),
  /** A plan is read with a schema of its own, which says what is wrong with it. */
  from: z
    .union([text, z.record(z.string(), z.unknown())], { error: 'expected a plan, a run or a file' })
    .optional(),
  approve: z.boolean().optional(),
})
const ApprovalsSchema = z.strictObject({
  mode: z.enum(['ask', 'all', 'none']).optional(),
  rules: z.array(ApprovalRule).max(1_000).optional(),
  interactive: z.boolean().optional(),
})
const EgressRules = z.array(EgressRule.superRefine(refuseUnreadable)).max(1_000)
const EgressSchema = z.strictObject({ rules: EgressRules.optional() })
const ExtensionsSchema = z.strictObject({
  hostTools: z.record(z.string(), ToolOption).optional(),
  mcpServers: z.record(z.string(), z.unknown()).optional(),
  hooks: z.array(Hook).optional(),
})

const contextValue = 'expected a text, or a section: text, per, maxTokens, place, from'
const sectionNames = 'expected the name of a section: at most 100 characters, no "<" and no ">"'
const ContextSectionSchema = z
  .strictObject({
    text: z.union([Document, givenFunction]),
    per: z.enum(['run', 'turn']).optional(),
    maxTokens: SectionTokens.optional(),
    place: SectionPlace.optional(),
    from: SectionName.optional(),
  })
  .refine(({ per, place }) => per !== 'turn' || place === undefined)

/** Sections stand in tags of the prompt. */
function checkSectionNames(facts: Readonly<Record<string, unknown>>, context: z.RefinementCtx): void {
  for (const [name, value] of Object.entries(facts))
    if (typeof value !== 'string' && !SectionName.safeParse(name).success)
      context.addIssue({ code: 'custom', path: [name], message: sectionNames })
}

const RunQueueSchema = z.strictObject({
  lane: Line.optional(),
  laneMaxAtWork: z.int().min(1).optional(),
  priority: RunPriority.optional(),
  startWithinMs: StartWithin.optional(),
})

/** The names of {@link RunOptions} and no other. */
const RunSchema = z.strictObject({
  prompt: Document,
  workspace: z.string().min(1).max(4_096).optional(),
  model: text.optional(),
  effort: Effort.optional(),
  fallback: FallbackModels.optional(),
  stepModels: StepModels.optional(),
  tools: z
    .union([z.boolean(), z.array(z.string()), z.record(z.string(), z.boolean())], { error: toolChoice })
    .optional(),
  onApproval: givenFunction.optional(),
  signal: z.custom((value) => value instanceof AbortSignal, 'expected an AbortSignal').optional(),
  onProgress: givenFunction.optional(),
  onNotes: givenFunction.optional(),
  context: z
    .record(Line.min(1), z.union([Document, ContextSectionSchema], { error: contextValue }))
    .refine((facts) => Object.keys(facts).length <= 1_000, 'expected at most 1,000 facts')
    .superRefine(checkSectionNames)
    .optional(),
  metadata: RunMetadata.optional(),
  leaveOnSleep: z.boolean().optional(),
  continue: text.optional(),
  replay: text.refine((name) => !name.includes('\0'), 'expected a run or a directory').optional(),
  /** Read as a JSON schema with the other settings of the run. */
  outputSchema: z.record(z.string(), z.unknown()).optional(),
  images: z.array(ImagePath).max(imagesMaxCount).optional(),
  folders: z.array(FolderSchema).max(addedFoldersMax).optional(),
  files: FilesSchema.optional(),
  plan: PlanSchema.optional(),
  approvals: ApprovalsSchema.optional(),
  egress: EgressSchema.optional(),
  limits: RunLimits.partial().optional(),
  vm: RunVmSchema.optional(),
  queue: RunQueueSchema.optional(),
  extensions: ExtensionsSchema.optional(),
})

const SandboxSchema = RunSchema.pick({
  workspace: true,
  egress: true,
  onProgress: true,
  signal: true,
}).extend({ vm: VmSchema.optional(), secrets: z.array(text).optional() })

const HostQueueSchema = z.strictObject({
  maxAtWork: z.int().min(1).max(10_000).optional(),
  maxWaiting: z.int().min(0).max(10_000).optional(),
  maxWaitingPerLane: z.int().min(0).max(10_000).optional(),
})

/** The configuration has a schema of its own. */
const HostSchema = z.strictObject({
  pool: z
    .strictObject({
      size: z.int().min(0),
      maxVms: z.int().min(1).optional(),
      maxMemoryBytes: z.number().positive().optional(),
      waitMs: z.number().min(0).optional(),
      vm: PoolVmSchema.optional(),
    })
    .optional(),
  queue: HostQueueSchema.optional(),
  config: z.unknown().optional(),
  overrides: z.array(z.string().max(65_536)).max(64).optional(),
  fences: z
    .custom(
      (value) =>
        typeof value === 'object' && value !== null && 'of' in value && typeof value.of === 'function',
      'expected an object with of()',
    )
    .optional(),
  apiKeys: z
    .custom(
      (value) =>
        typeof value === 'object' &&
        value !== null &&
        ['read', 'change'].every((name) => typeof Reflect.get(value, name) === 'function'),
      'expected a store of API keys: an object with the functions read and change',
    )
    .optional(),
  /** An object of a class, as a rule. */
  notes: z
    .custom(
      (value) =>
        typeof value === 'object' &&
        value !== null &&
        ['list', 'change'].every((name) => typeof Reflect.get(value, name) === 'function'),
      'expected a storage of notes: an object with the functions list and change',
    )
    .optional(),
  workflows: z.custom(isStore, storeExpected).optional(),
  /** Not a record, since `process.env` is not a plain object. */
  env: z
    .custom(
      (value) =>
        typeof value === 'object' &&
        value !== null &&
        Object.values(value).every((item) => item === undefined || typeof item === 'string'),
      'expected a map of variables to text',
    )
    .optional(),
})

type SameKeys<Declared, Schema extends z.ZodType> = [keyof Declared] extends [keyof z.infer<Schema>]
  ? [keyof z.infer<Schema>] extends [keyof Declared]
    ? true
    : false
  : false
type AllTrue<Checks extends readonly true[]> = Checks
/** Does not compile where a schema and the declared type of the options have different fields. */
export type SameFields = AllTrue<
  [
    SameKeys<RunOptions, typeof RunSchema>,
    SameKeys<AddedFolder, typeof FolderSchema>,
    SameKeys<FileSelection, typeof FilesSchema>,
    SameKeys<PlanOptions, typeof PlanSchema>,
    SameKeys<ApprovalOptions, typeof ApprovalsSchema>,
    SameKeys<EgressOptions, typeof EgressSchema>,
    SameKeys<RunExtensions, typeof ExtensionsSchema>,
    SameKeys<RunVmOptions, typeof RunVmSchema>,
    SameKeys<RunQueueOptions, typeof RunQueueSchema>,
    SameKeys<HostQueueOptions, typeof HostQueueSchema>,
    SameKeys<VmOptions, typeof VmSchema>,
    SameKeys<SandboxOptions, typeof SandboxSchema>,
    SameKeys<HostOptions, typeof HostSchema>,
  ]
>

/** The names that an error lists, by the place of the object. */
export const runNames = {
  '': Object.keys(RunSchema.shape),
  folders: Object.keys(FolderSchema.shape),
  files: Object.keys(FilesSchema.shape),
  plan: Object.keys(PlanSchema.shape),
  approvals: Object.keys(ApprovalsSchema.shape),
  'approvals.rules': Object.keys(ApprovalRule.shape),
  egress: Object.keys(EgressSchema.shape),
  'egress.rules': Object.keys(EgressRule.shape),
  limits: Object.keys(RunLimits.shape),
  vm: Object.keys(RunVmSchema.shape),
  queue: Object.keys(RunQueueSchema.shape),
  extensions: Object.keys(ExtensionsSchema.shape),
} satisfies Names

const hostNames: Names = {
  '': Object.keys(HostSchema.shape),
  pool: Object.keys(HostSchema.shape.pool.unwrap().shape),
  'pool.vm': Object.keys(PoolVmSchema.shape),
  queue: Object.keys(HostQueueSchema.shape),
  config: Object.keys(Config.shape),
}

const sandboxNames: Names = {
  '': Object.keys(SandboxSchema.shape),
  vm: Object.keys(VmSchema.shape),
  egress: runNames.egress,
  'egress.rules': runNames['egress.rules'],
}

const runOptionsProblem = 'the options of the run cannot be used'

/** A copy that was checked. @throws {OptionsError} naming every field that is wrong, and what it may be */
export function checkRunOptions(given: RunOptions): RunOptions {
  const [options, parsed] = readOptions(runOptionsProblem, () => {
    const copy = copyOptions(given)
    return [copy, RunSchema.safeParse(copy, plainMessages)] as const
  })
  const problems = parsed.success ? [] : problemsOf(parsed.error, runNames)
  if (parsed.success && isBlank(options))
    problems.push({
      field: 'prompt',
      message: 'expected what the agent should do; it may be empty only with plan.from',
    })
  if (parsed.success && options.outputSchema !== undefined && options.plan?.only === true)
    problems.push({
      field: 'outputSchema',
      message:
        'a run with option plan.only ends with its plan and has no final answer; leave out one of them',
    })
  if (problems.length > 0) throw new OptionsError(runOptionsProblem, problems)
  return options
}

/** What every call may be given. */
const CallOptions = RunSchema.pick({ onProgress: true, signal: true })
const ResumeSchema = RunSchema.pick({
  onApproval: true,
  signal: true,
  onProgress: true,
  onNotes: true,
  extensions: true,
  leaveOnSleep: true,
}).extend({
  interactive: z.union([z.boolean(), z.literal('stored')]).optional(),
  context: z
    .record(
      Line.min(1),
      ContextSectionSchema.refine(({ per }) => per === 'turn', {
        path: ['per'],
        error: "expected 'turn'; the other sections of the run are in its task",
      }),
    )
    .superRefine(checkSectionNames)
    .optional(),
  takeOver: z.boolean().optional(),
  fromBeginning: z.boolean().optional(),
  endIfCancelled: z.boolean().optional(),
  limits: RunLimits.pick({ maxTokens: true, maxCostUsd: true }).partial().optional(),
})
const ReplaySchema = z.strictObject({ signal: SignalOption, onProgress: givenFunction.optional() })
const ExportSchema = z.strictObject({ signal: SignalOption, onNote: givenFunction.optional() })
const UnpackSchema = z.strictObject({
  signal: SignalOption,
  maxBytes: z.int().min(1).optional(),
  maxEntries: z.int().min(1).optional(),
})
const ImportSchema = z.strictObject({ signal: SignalOption, workspace: text.optional() })
const ModelOptions = RunSchema.pick({ model: true, replay: true })

/** @throws {OptionsError} naming every field that is wrong */
export function checkCallOptions(options: unknown): void {
  checkArguments('the options of the call cannot be used', CallOptions, options)
}

/** @throws {OptionsError} naming every field that is wrong */
export function checkChangeOptions(options: unknown): void {
  checkArguments(
    'the options of the call cannot be used',
    CallOptions.extend({ by: Line.optional() }),
    options,
  )
}

/** @throws {OptionsError} naming every field that is wrong */
export function checkReplayOptions(options: unknown): void {
  checkArguments('the options of the call cannot be used', ReplaySchema, options)
}

/** @throws {OptionsError} naming every field that is wrong, also for what is no stream */
export function checkExport(to: unknown, options: unknown): void {
  checkArguments('the stream cannot be used', z.instanceof(Writable, { error: 'expected a Writable' }), to)
  checkArguments('the options of the call cannot be used', ExportSchema, options)
}

/** @throws {OptionsError} naming every field that is wrong, also for what is no stream */
export function checkImport(from: unknown, options: unknown): void {
  checkArguments('the stream cannot be used', z.instanceof(Readable, { error: 'expected a Readable' }), from)
  checkArguments('the options of the call cannot be used', ImportSchema, options)
}

/** @throws {OptionsError} */
export function checkUnpack(from: unknown, options: unknown): void {
  checkArguments('the stream cannot be used', z.instanceof(Readable, { error: 'expected a Readable' }), from)
  checkArguments('the options of the call cannot be used', UnpackSchema, options)
}

/** A copy that was checked. @throws {OptionsError} naming every field that is wrong */
export function checkResumeOptions(given: ResumeOptions): ResumeOptions {
  const what = 'the options of the call cannot be used'
  const options = readOptions(what, () => copyOptions(given))
  checkArguments(what, ResumeSchema, options, runNames)
  return options
}

/** @throws {OptionsError} naming every field that is wrong */
export function checkModelOptions(options: unknown): void {
  checkArguments('the options of the call cannot be used', ModelOptions, options)
}

/** @returns the configuration, if one is given. @throws {OptionsError} naming every field that is wrong, and what it may be */
export function checkHostOptions(options: HostOptions): Config | undefined {
  const what = 'the options of the host cannot be used'
  checkArguments(what, HostSchema, options, hostNames)
  const parsed = readOptions(what, () =>
    // A value may be a key that does not belong there.
    z.object({ config: Config.optional() }).safeParse({ config: options.config }, plainMessagesWithoutValues),
  )
  if (parsed.success) return parsed.data.config
  throw new OptionsError(what, problemsOf(parsed.error, hostNames))
}

/** A copy that was checked. @throws {OptionsError} naming every field that is wrong, and what it may be */
export function checkSandboxOptions(given: SandboxOptions): SandboxOptions {
  const what = 'the options of the sandbox cannot be used'
  const options = readOptions(what, () => copyOptions(given))
  checkArguments(what, SandboxSchema, options, sandboxNames)
  return options
}

/** @throws {OptionsError} naming the rule and the field */
export function checkEgressRules(rules: readonly EgressRule[]): EgressRule[] {
  const parsed = z
    .strictObject({ egress: z.strictObject({ rules: EgressRules }) })
    .safeParse({ egress: { rules } }, plainMessages)
  if (parsed.success) return parsed.data.egress.rules
  throw new OptionsError('the egress rules cannot be used', problemsOf(parsed.error, runNames))
}

function isBlank({ prompt, plan }: RunOptions): boolean {
  return prompt.trim() === '' && plan?.from === undefined
}

function findSizeProblem(requested: Partial<VmSize>): string | undefined {
  try {
    resolveSize(requested)
    return undefined
  } catch (error) {
    if (error instanceof VmError) return `expected ${error.expected}, seen: ${error.seen}`
    throw error
  }
}
