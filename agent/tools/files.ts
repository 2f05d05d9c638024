/** The file tools of an agent, all over one workspace. */
import { createApplyPatch } from './apply-patch.ts'
import type { FileToolsOptions } from './file-access.ts'
import { createListFiles } from './file-list.ts'
import { createDeleteFile, createMoveFile } from './file-manage.ts'
import { createReadFile } from './file-read.ts'
import { createEditFile, createWriteFile } from './file-write.ts'
import { ReadLedger } from './read-ledger.ts'
import { createSearchFiles, type RunSandboxed } from './search.ts'
import type { Tool } from './tool.ts'

export type { FileToolsOptions } from './file-access.ts'
export type { RunSandboxed } from './search.ts'

/**
 * @param run runs ripgrep in the sandbox, with the workspace as its directory
 * @param shared what the conversations know of its files is the tools' own unless given
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
