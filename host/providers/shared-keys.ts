/** What several hosts know of a model key together: the rate of its requests, and the models that its server holds back. */
import type { ModelHold } from './model-pauses.ts'
import type { RequestQueue } from './queue.ts'

export interface SharedKeys {
  /** Joins the queue of a key on this host to those of the others. Rejects never, and waits for others at most briefly. */
  join(queue: RequestQueue, server: string, key: string | null): Promise<void>
  /** Tells the other hosts that a server holds a model back from the key. Never rejects. */
  keep(server: string, key: string | null, model: string, hold: ModelHold): Promise<void>
}
