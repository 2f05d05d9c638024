/** Cuts the link to the agents of this process: what a port has under way is lost, and both sides begin a new session. */
import { AgentLink } from '../../host/guest/agent-link.ts'
import { VmLife } from '../../host/vm/vm-lifecycle.ts'
import { FaultyPort } from '../../test/link/faulty-port.ts'

const directions = ['to-host', 'to-guest'] as const

/** @returns cuts each port that is open, in each direction, after this many bytes more */
export function prepareCuts(): (bytes: number) => void {
  const ports = new Set<FaultyPort>()
  let link: AgentLink | undefined
  const onCut = (): void => link?.restartSession('cut')
  const toVm = VmLife.prototype.toVm
  VmLife.prototype.toVm = function (this: VmLife, ...args) {
    const vm = toVm.apply(this, args)
    const [rpc, http] = [vm.rpc, vm.http].map((port) => {
      const faulty = new FaultyPort(port, { onCut })
      ports.add(faulty)
      faulty.once('close', () => ports.delete(faulty))
      return faulty
    }) as [FaultyPort, FaultyPort]
    return { ...vm, rpc, http }
  }
  const ready = AgentLink.prototype.ready
  AgentLink.prototype.ready = function (this: AgentLink, ...args) {
    link = this
    return ready.apply(this, args)
  }
  return (bytes) => {
    for (const port of ports)
      for (const direction of directions)
        if (!port.isWaiting(direction)) port.add({ kind: 'cut', direction }, bytes)
  }
}
