/** A process of bare pg-boss, with the settings of the fleet's queue: jobs that do nothing, one transaction for each. */
import { once } from 'node:events'
import { PgBoss } from 'pg-boss'

export interface BossOrder {
  readonly connection: string
  readonly slots: number
  /** That this process submits once it is asked. */
  readonly jobs: number
}

export type BossReport = 'ready' | 'done'

const [{ connection, slots, jobs }] = (await once(process, 'message')) as [BossOrder]
process.once('disconnect', () => process.exit())
const seconds = { monitorIntervalSeconds: 1, superviseIntervalSeconds: 1 }
const boss = new PgBoss({
  ...{ connectionString: connection, max: 4, useListenNotify: true, schedule: false },
  ...seconds,
})
boss.on('error', (error) => void process.stderr.write(`${error.message}\n`))
await boss.start()
if ((await boss.getQueue('bare')) === null)
  await boss.createQueue('bare', { policy: 'stately', notify: true, heartbeatSeconds: 10 })
const how = {
  ...{ localConcurrency: slots, batchSize: 1 },
  ...{ pollingIntervalSeconds: 1, notifyPollingIntervalSeconds: 1 },
}
await boss.work('bare', how, async () => {
  process.send?.('done' satisfies BossReport)
})
process.send?.('ready' satisfies BossReport)
await once(process, 'message')
for (let index = 0; index < jobs; index += 1)
  await boss.send('bare', { index }, { singletonKey: `${index}`, priority: -index })
