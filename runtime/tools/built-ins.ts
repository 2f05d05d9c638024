/** The built-in tools that need no registry. Loaded when a request may offer one. */
import { askUserInputTool } from './ask-user-input.ts'
import type { BuiltIn } from './built-in.ts'
import { listFilesTool, readFileTool, writeFileTool } from './files.ts'
import { grepTool } from './grep.ts'
import { humanRequestTool } from './human-request.ts'
import { shellCmdTool } from './shell-cmd.ts'
import { createWebFetch, type WebFetchOptions } from './web-fetch.ts'

/** All but `load_skill`, which depends on the available skills. */
export function builtInTools(options: WebFetchOptions): BuiltIn[] {
  return [
    askUserInputTool,
    grepTool,
    humanRequestTool,
    listFilesTool,
    readFileTool,
    shellCmdTool,
    createWebFetch(options),
    writeFileTool,
  ]
}
