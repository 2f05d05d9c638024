/** The agent as it is, and a crash of its process once a command has left the file `crash-now` in the workspace. */
import { existsSync } from 'node:fs'
import '../../main.ts'

setInterval(() => {
  if (existsSync('/mnt/workspace/crash-now')) process.abort()
}, 50)
