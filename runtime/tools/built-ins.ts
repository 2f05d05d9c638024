/** The library's own tools, as far as they need no registry. Loaded when a request may offer one. */
import type { BuiltIn } from './built-in.ts'
import { grepTool } from './grep.ts'
import { humanRequestTool } from './human-request.ts'
import { listFilesTool } from './list-files.ts'
import { readFileTool } from './read-file.ts'
import { shellCmdTool } from './shell-cmd.ts'
import { createWebFetch, type WebFetchOptions } from './web-fetch.ts'
import { writeFileTool } from './write-file.ts'

/** Those that work in a folder; without a working directory they are not there. */
const inFolder: readonly BuiltIn[] = [grepTool, listFilesTool, readFileTool, shellCmdTool, writeFileTool]

/** All but `load_skill`, which depends on what skills there are. */
export function builtInTools(options: WebFetchOptions, workingDirectory: string | undefined): BuiltIn[] {
  const anywhere = [humanRequestTool, createWebFetch(options)]
  return workingDirectory === undefined ? anywhere : [...anywhere, ...inFolder]
}
