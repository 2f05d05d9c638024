/**
 * Checks what an application passes for a host or a run against schemas, before anything starts; names each
 * field that is wrong.
 */

import * as z from 'zod'
import { ApprovalRule } from '#specs/protocol/approval.ts'
import { EgressRule } from '#specs/protocol/egress.ts'
import { HookPoint } from '#specs/protocol/hook.ts'
import { plainMessages } from '#specs/protocol/issue-text.ts'
import { RunLimits, Task } from '#specs/protocol/task.ts'
import { Document, Line } from '#specs/protocol/text.ts'
import { checkArguments, type Names, OptionsError, problemsOf } from './files/check-arguments.ts'
import type { HostOptions } from './host-options.ts'
import type { RunOptions } from './run-options.ts'
import type { SandboxOptions } from './sandbox-options.ts'
import { VmError } from './vm/vm-error.ts'
import { resolveSize, type VmSize } from './vm/vm-options.ts'

export { OptionsError } from './files/check-arguments.ts'

const givenFunction = z.custom((value) => typeof value === 'function', 'expected a function')
const text = Line.min(1)
const size = (name: keyof VmSize) =>
  z.number().superRefine((value, context) => {
    const problem = findSizeProblem({ [name]: value })
    if (problem !== undefined) context.addIssue({ code: 'custom', message: problem })
  })

const VmChoice = z.strictObject({
  memoryBytes: size('memoryBytes').optional(),
  cpus: size('cpus').optional(),
  diskBytes: size('diskBytes').optional(),
  /** An image of the application's own, read when the VM starts. */
  disk: z.custom((value) => typeof value === 'object' && value !== null, 'expected a disk image').optional(),
  accelerator: z.enum(['auto', 'kvm', 'hvf', 'tcg']).optional(),
  confine: z.enum(['auto', 'require']).optional(),
  start: z.enum(['auto', 'cold']).optional(),
  hibernateAfterMs: z.int().min(0).optional(),
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
const Tool = z.looseObject({
  description: z.string(),
  inputSchema: z.custom((value) => typeof value === 'object' && value !== null, 'expected a schema'),
  execute: givenFunction,
})

const toolChoice = 'expected true, false, a list of names, or a map from names to true or false'

/** All that may be passed for a run: the names of {@link RunOptions} and no other. */
const Options = z.strictObject({
  prompt: Document,
  mode: z.enum(['work', 'plan']).optional(),
  approvePlan: z.boolean().optional(),
  /** Read with the plan schema, which says what is wrong with it. */
  plan: z.unknown().optional(),
  planFrom: text.optional(),
  context: Task.shape.context,
  workspace: z.string().min(1).optional(),
  include: z.array(z.string()).optional(),
  model: text.optional(),
  tools: z
    .union([z.boolean(), z.array(z.string()), z.record(z.string(), z.boolean())], { error: toolChoice })
    .optional(),
  acceptIgnoreRules: z.boolean().optional(),
  hostTools: z.record(z.string(), Tool).optional(),
  mcpServers: z.record(z.string(), z.unknown()).optional(),
  hooks: z.array(Hook).optional(),
  limits: RunLimits.partial().optional(),
  vm: VmChoice.optional(),
  approve: z.enum(['ask', 'all', 'none']).optional(),
  approvalRules: z.array(ApprovalRule).max(1_000).optional(),
  interactive: z.boolean().optional(),
  egress: z.strictObject({ rules: z.array(EgressRule).optional() }).optional(),
  continue: text.optional(),
  keepVm: z.boolean().optional(),
  onApproval: givenFunction.optional(),
  onProgress: givenFunction.optional(),
  onNotes: givenFunction.optional(),
  replay: text.optional(),
  signal: z.custom((value) => value instanceof AbortSignal, 'expected an AbortSignal').optional(),
})
type Same<A, B> = [A] extends [B] ? ([B] extends [A] ? true : never) : never
/** Does not compile where the schema and the type have different fields. */
const hasSameFields: Same<keyof RunOptions, keyof z.infer<typeof Options>> = true
void hasSameFields

/** All that may be passed for a sandbox. */
const SandboxVm = VmChoice.omit({ hibernateAfterMs: true })
const ForSandbox = Options.pick({
  workspace: true,
  egress: true,
  onProgress: true,
  signal: true,
}).extend({ vm: SandboxVm.optional() })
const hasSameSandboxFields: Same<keyof SandboxOptions, keyof z.infer<typeof ForSandbox>> = true
void hasSameSandboxFields

/** All that may be passed for a host. The configuration has a schema of its own, which reads it when it is used. */
const Choices = z.strictObject({
  pool: z
    .strictObject({
      size: z.int().min(0),
      maxVms: z.int().min(1).optional(),
      maxMemoryBytes: z.number().positive().optional(),
      waitMs: z.number().min(0).optional(),
      vm: VmChoice.optional(),
    })
    .optional(),
  config: z.unknown().optional(),
  /** Not a record, for `process.env` is no plain object. */
  env: z
    .custom((value) => typeof value === 'object' && value !== null, 'expected a map of variables')
    .optional(),
})
const hasSameChoices: Same<keyof HostOptions, keyof z.infer<typeof Choices>> = true
void hasSameChoices

const namesOfHost: Names = {
  '': Object.keys(Choices.shape),
  pool: Object.keys(Choices.shape.pool.unwrap().shape),
  'pool.vm': Object.keys(VmChoice.shape),
}

const namesOfRun: Names = {
  '': Object.keys(Options.shape),
  limits: Object.keys(RunLimits.shape),
  vm: Object.keys(VmChoice.shape),
  egress: ['rules'],
  approvalRules: Object.keys(ApprovalRule.shape),
  'egress.rules': Object.keys(EgressRule.shape),
}

const namesOfSandbox: Names = {
  '': Object.keys(ForSandbox.shape),
  vm: Object.keys(SandboxVm.shape),
  egress: ['rules'],
  'egress.rules': Object.keys(EgressRule.shape),
}

/** @throws {OptionsError} naming every field that is wrong, and what it may be */
export function checkRunOptions(options: RunOptions): void {
  const parsed = Options.safeParse(options, plainMessages)
  const problems = parsed.success ? [] : problemsOf(parsed.error, namesOfRun)
  if (parsed.success && isBlank(options))
    problems.push({
      field: 'prompt',
      message: 'expected what the agent should do; it may be empty only with plan or planFrom',
    })
  if (problems.length > 0) throw new OptionsError('the options of the run cannot be used', problems)
}

/** What every call may be given. */
const CallOptions = Options.pick({ onProgress: true, signal: true })
const ModelOptions = Options.pick({ model: true, replay: true })

/** @throws {OptionsError} naming every field that is wrong */
export function checkCallOptions(options: unknown): void {
  checkArguments('the options of the call cannot be used', CallOptions, options)
}

/** @throws {OptionsError} naming every field that is wrong */
export function checkModelOptions(options: unknown): void {
  checkArguments('the options of the call cannot be used', ModelOptions, options)
}

/** @throws {OptionsError} naming every field that is wrong, and what it may be */
export function checkHostOptions(options: HostOptions): void {
  checkArguments('the options of the host cannot be used', Choices, options, namesOfHost)
}

/** @throws {OptionsError} naming every field that is wrong, and what it may be */
export function checkSandboxOptions(options: SandboxOptions): void {
  checkArguments('the options of the sandbox cannot be used', ForSandbox, options, namesOfSandbox)
}

/** @throws {OptionsError} naming the rule and the field */
export function checkEgressRules(rules: readonly EgressRule[]): EgressRule[] {
  const parsed = z
    .strictObject({ egress: z.strictObject({ rules: z.array(EgressRule) }) })
    .safeParse({ egress: { rules } }, plainMessages)
  if (parsed.success) return parsed.data.egress.rules
  throw new OptionsError('the egress rules cannot be used', problemsOf(parsed.error, namesOfRun))
}

function isBlank({ prompt, plan, planFrom }: RunOptions): boolean {
  return prompt.trim() === '' && plan === undefined && planFrom === undefined
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
