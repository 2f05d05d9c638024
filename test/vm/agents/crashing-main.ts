/** The agent as it is, and one crash of its first process once a command has left the file `crash-now` in the workspace. */
import { existsSync, readFileSync } from 'node:fs'
import { startAgent as startRealAgent } from '../../../agent/main.ts'

function crashedBefore(): boolean {
  try {
    return JSON.parse(readFileSync(process.env.CAISSON_AGENT_EXITS ?? '', 'utf8')).last !== null
  } catch {
    return false
  }
}

/** What the bundle of this file does in the guest. */
export function startAgent(): void {
  startRealAgent()
  if (crashedBefore()) return
  setInterval(() => {
    if (existsSync('/mnt/workspace/crash-now')) process.abort()
  }, 50)
}
