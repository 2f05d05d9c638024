/** The file tools of an agent over one workspace. */

import type { Tool } from '../tool-calls/tool.ts'
import type { FileToolsOptions } from '../workspace/file-access.ts'
import { ReadLedger } from '../workspace/read-ledger.ts'
import { createListFiles } from './files/file-list.ts'
import { createDeleteFile, createMoveFile } from './files/file-manage.ts'
import { createReadFile } from './files/file-read.ts'
import { createEditFile, createWriteFile } from './files/file-write.ts'
import { createSearchFiles, type RunSandboxed } from './files/search.ts'
import { createApplyPatch } from './patch/apply-patch.ts'

export type { FileToolsOptions } from '../workspace/file-access.ts'
export type { RunSandboxed } from './files/search.ts'

/**
 * @param run runs ripgrep in the sandbox, in the workspace's root
 * @param shared ledger of what conversations have read; default: a new one
 */
export function createFileTools(run: RunSandboxed, shared: FileToolsOptions = {}): Tool[] {
  const options = { ledger: new ReadLedger(), ...shared }
  return [
    createReadFile(options),
    createWriteFile(options),
    createEditFile(options),
    createApplyPatch(options),
    createListFiles(options),
    createSearchFiles(run, options),
    createMoveFile(options),
    createDeleteFile(options),
  ]
}
