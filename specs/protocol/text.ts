/** Bounded strings, ids and paths: the atoms from which the other schemas are made. */
import * as z from 'zod'
import { limits } from './limits.ts'

/** Short text, as a title or a reason. */
export const Line = z.string().max(limits.lineMaxChars)
/** A paragraph. */
export const Text = z.string().max(limits.textMaxChars)
/** A document. */
export const Document = z.string().max(limits.documentMaxChars)
/** Made by the host: `run-` and 20 lower-case hex digits. */
export const RunId = z.string().regex(/^run-[0-9a-f]{20}$/, 'expected run- and 20 hex digits')
/** A step, tool call or approval; made by the agent or the model, so only its alphabet is known. */
export const Id = z.string().regex(/^[A-Za-z0-9._:-]{1,64}$/, 'expected 1 to 64 of A-Z a-z 0-9 . _ : -')
/** Lower-case hex. */
export const Sha256 = z.string().regex(/^[0-9a-f]{64}$/, 'expected 64 hex digits')
/** Milliseconds since 1970, or a duration. */
export const Milliseconds = z.int().min(0)
export const Count = z.int().min(0)

/**
 * A path below the workspace: relative, `/` between names, no empty name, `.` or `..`, no NUL.
 * Names are bytes on Linux; bytes that are not UTF-8 stand as lone surrogates U+DC80 to U+DCFF (PEP 383).
 */
export const WorkspacePath = z
  .string()
  .min(1)
  .max(limits.pathMaxBytes)
  .refine((path) => isPlainRelativePath(path), 'expected a relative path without empty, . or .. names')

/** Whether every name of `path` is a plain one; says nothing about what it points to on a disk. */
export function isPlainRelativePath(path: string): boolean {
  if (path.includes('\0')) return false
  return path.split('/').every((name) => name !== '' && name !== '.' && name !== '..')
}

/** The agent that did something: `root`, later `root/2` for a sub-agent. */
export const AgentPath = z.string().regex(/^root(\/[A-Za-z0-9_-]{1,32}){0,8}$/, 'expected root or root/NAME')
