/** The real agent, which counts what it draws at random. */
import { startAgent as startRealAgent } from '../../main.ts'
import { countDraws } from './count-draws.ts'

export function startAgent(): void {
  countDraws()
  startRealAgent()
}
