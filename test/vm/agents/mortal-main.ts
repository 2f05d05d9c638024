/** The agent as it is; its first process in a VM is killed where a command has left the word `die` in the file `fate`. */
import { readFileSync } from 'node:fs'
import { startAgent as startRealAgent } from '../../../agent/main.ts'
import { readExits } from '../../../agent/restart-info.ts'

/** What the bundle of this file does in the guest. */
export function startAgent(): void {
  startRealAgent()
  if (readExits(process.env.CAISSON_AGENT_EXITS).restarts > 0) return
  setInterval(() => {
    if (readFate() === 'die') process.kill(process.pid, 'SIGKILL')
  }, 50)
}

function readFate(): string {
  try {
    return readFileSync('/mnt/workspace/fate', 'utf8')
  } catch {
    return ''
  }
}
