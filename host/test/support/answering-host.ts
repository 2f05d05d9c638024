/** Answers an approval of a run as soon as a file is there, and says what became of it: `answering-host.ts JSON`. */
import { existsSync } from 'node:fs'
import { Host } from '../../host.ts'

export interface AnsweringOrder {
  readonly runId: string
  readonly approvalId: string
  readonly by: string
  readonly decision: 'allow' | 'deny'
  /** Says that this process is ready. */
  readonly go: string
}

const { runId, approvalId, by, decision, go } = JSON.parse(process.argv[2] ?? '') as AnsweringOrder
const host = new Host()
process.stdout.write('ready\n')
while (!existsSync(go)) await new Promise((resolve) => setTimeout(resolve, 2))
process.stdout.write(
  JSON.stringify(await host.answer(runId, approvalId, { decision, scope: 'once' }, { by })),
)
