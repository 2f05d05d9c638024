/** JSON of what belongs to the user of the service and to no run: notes, permanent answers, skills, workflows, the machine. */
import * as z from 'zod'
import { EgressRule } from '../protocol/egress.ts'
import { SkillHead } from '../protocol/extension.ts'
import { Count, Milliseconds, RunId, Sha256 } from '../protocol/text.ts'
import { wholeNumber } from './number-text.ts'

/** A kept note: of a workspace (`memory`), which its runs get, or of a proposal (`governance`). */
export const NoteResource = z.looseObject({
  kind: z.enum(['memory', 'governance']),
  noteId: z.string(),
  text: z.string(),
})

/** An answer about network access that applies to every run. */
export const GrantResource = z.strictObject({
  /** For revoking; never reused. */
  id: Count.min(1),
  rule: EgressRule,
  /** The run whose question was answered. */
  runId: RunId,
  at: Milliseconds,
})

/** Skills of the user, as a run would get them now. */
export const SkillsResource = z.strictObject({
  /** Folders of the service's machine. */
  roots: z.array(z.string()),
  skills: z.array(SkillHead),
  problems: z.array(z.strictObject({ path: z.string(), problem: z.string() })),
})

/** A published workflow: `name@version` starts it. */
export const StoredWorkflowResource = z.strictObject({
  /** The agent of its file. */
  name: z.string(),
  version: z.string(),
  /** Of its text. */
  sha256: Sha256,
})

/** What a VM needs on the service's machine, as `caisson doctor` shows it. */
export const FindingResource = z.strictObject({
  /** Stable name, such as `accelerator`. */
  id: z.string(),
  title: z.string(),
  /** `warn`: works with a restriction; `fail`: no VM can start. */
  status: z.enum(['ok', 'warn', 'fail']),
  /** Whether nothing protects the user from a hostile guest. Absent: no. */
  isUnsafe: z.boolean().optional(),
  seen: z.string(),
  /** Absent: nothing need be done. */
  remedy: z.string().optional(),
})

/** A saved VM that others begin from, as `caisson vm templates` shows it. */
export const TemplateResource = z.strictObject({
  name: z.string(),
  /** Of the service's machine. */
  directory: z.string(),
  /** Bytes used on disk. */
  bytes: Count,
  usedAtMs: Milliseconds,
  isIntact: z.boolean(),
  /** Why the next use makes it again; null where it can be used. */
  problem: z.string().nullable(),
  /** The others are null where it is damaged or of another version. `mapped`: VMs share its memory; `plain`: each loads it. */
  kind: z.enum(['mapped', 'plain']).nullable(),
  createdAtMs: Milliseconds.nullable(),
  tookMs: Milliseconds.nullable(),
  qemuVersion: z.string().nullable(),
  memoryBytes: Count.nullable(),
})

export const GrantParams = z.strictObject({ grant: wholeNumber({ min: 1 }) })
