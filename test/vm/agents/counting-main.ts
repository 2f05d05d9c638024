/**
 * The real agent, which counts what it draws at random, and tells the host with each session instead of how
 * earlier processes ended.
 */
import { startAgent as startRealAgent } from '../../../agent/main.ts'
import { countDraws } from './count-draws.ts'

export function startAgent(): void {
  const counts = countDraws()
  startRealAgent(() => ({ restarts: 0, lastExit: JSON.stringify(counts) }))
}
