// The host's side of a probe that answers requests on the control port of a VM, one JSON value a line.

import { once } from 'node:events'
import { createInterface } from 'node:readline'
import type { Vm } from '../../vm/vm.ts'

/** Asks one thing after another; the caller knows the reply's shape. */
export type Ask = (request: object) => Promise<unknown>

/** Serves one VM. Rejects when the VM ends first. */
export function askOverLines(vm: Vm): Ask {
  const lines = createInterface({ input: vm.rpc })
  const ended = once(lines, 'close').then(() => {
    throw new Error(`the VM ended: ${vm.console.text()}`)
  })
  ended.catch(() => undefined)
  let lastId = 0
  return async (request) => {
    lastId += 1
    const answer = once(lines, 'line')
    vm.rpc.write(`${JSON.stringify({ ...request, id: lastId })}\n`)
    const [line] = (await Promise.race([answer, ended])) as [string]
    const { id, value } = JSON.parse(line) as { id: number; value: unknown }
    if (id !== lastId) throw new Error(`an answer to ${id} in the place of ${lastId}`)
    return value
  }
}
