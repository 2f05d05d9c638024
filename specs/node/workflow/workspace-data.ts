/** A workflow as it runs: the form of a file after it was read and checked. */
import type { OutputSchema } from '#specs/protocol/plan.ts'
import type {
  FunctionDetails,
  StepDetails,
  StepWorkName,
  TakenFunctionDetails,
} from '#specs/protocol/workflow-format.ts'

/** A workflow file, read and checked. */
export interface WorkspaceData {
  readonly agent: string
  readonly version: string
  readonly description?: string | undefined
  /** JSON schema of the input. Absent: any. */
  readonly input?: OutputSchema | undefined
  /** Expression that gives the result. Absent: the outputs of the steps that nothing follows. */
  readonly result?: string | undefined
  /** In the order of the file's list; the first one begins. */
  readonly steps: readonly WorkflowStep[]
  readonly functions: readonly WorkflowFunction[]
  /** Functions of other workflows that were not read yet. Absent: none. */
  readonly taken?: readonly TakenFunction[]
}

export interface WorkflowStep {
  readonly id: string
  /** For people. */
  readonly name: string
  readonly work: StepWorkName
  readonly details: StepDetails
  /** What follows, in the order in which conditions are tried. Empty: nothing. */
  readonly next: readonly Edge[]
}

/** A way from one step to another. */
export interface Edge {
  readonly to: string
  /** How the step has ended. */
  readonly on: 'completed' | 'failed'
  /** Condition of a case; the first case that holds is taken. Absent: always. */
  readonly when?: string
  /** Whether it is one of several cases. */
  readonly isCase: boolean
}

export type WorkflowFunction = FunctionDetails & { readonly name: string }

export type TakenFunction = TakenFunctionDetails & { readonly name: string }
