// A warm VM with a link to its agent and a shell in it, for tests of what happens to VMs.

import { buffer } from 'node:stream/consumers'
import { GuestAccess } from '../../control/guest-access.ts'
import { Shell } from '../../control/shell.ts'
import { type AgentLink, openAgentLink } from '../../guest/agent-link.ts'
import { warmUp } from '../../runs/guest/warm-up.ts'
import type { Folders } from '../../state/folders.ts'
import { openVm } from '../../vm/open-vm.ts'
import type { StartVmOptions, Vm } from '../../vm/vm.ts'
import { getTestImage } from './vm.ts'

const MIB = 1024 * 1024

export interface GuestLink {
  readonly link: AgentLink
  readonly access: GuestAccess
}

export async function testVmOptions(folders: Folders): Promise<StartVmOptions> {
  return { image: await getTestImage(), folders, memoryBytes: 512 * MIB }
}

/** A link that takes no task, and shells over it. */
export function openTestLink(vm: Vm, cloned: boolean): GuestLink {
  const refused = { ok: false, error: { code: 'notFound', message: 'no task given' } } as const
  const access: GuestAccess = new GuestAccess({ link: () => link })
  const link = openAgentLink({
    cloned,
    rpc: vm.rpc,
    http: vm.http,
    onStream: (stream, headers) => {
      if (!access.handleStream(stream, headers)) stream.respond({ ':status': 404 }, { endStream: true })
    },
    handlers: {
      onEvent: () => undefined,
      onDelta: () => undefined,
      requestApproval: async () => refused,
      completeTask: async () => refused,
      onLog: () => undefined,
    },
  })
  return { link, access }
}

/** A VM from a template (made when there is none), its agent ready; the caller stops the VM and closes the link. */
export async function startWarmTestVm(
  options: StartVmOptions,
): Promise<GuestLink & { readonly vm: Vm; readonly cloned: boolean }> {
  return await openVm(options, { warmUp }, async ({ vm, origin }) => {
    const cloned = origin.from === 'template'
    const guest = openTestLink(vm, cloned)
    const ready = await guest.link.ready({ timeoutMs: 30_000 })
    if (!ready.ok) throw new Error(ready.error.message)
    await vm.fresh
    return { ...guest, vm, cloned }
  })
}

/** Runs a command in the workspace, which must be open; its output. @throws when it does not exit with 0 */
export async function runInGuest({ access }: GuestLink, script: string): Promise<string> {
  const opened = await access.openShell({ argv: ['bash', '-c', script], terminal: null })
  if (!opened.ok) throw new Error(JSON.stringify(opened))
  const shell = new Shell(opened.value)
  shell.stdin.end()
  const [out, errors, end] = await Promise.all([buffer(shell.stdout), buffer(shell.stderr), shell.ended])
  if (end.kind !== 'exited' || end.exitCode !== 0) {
    throw new Error(`${script}: ${JSON.stringify(end)} ${errors.toString()}`)
  }
  return out.toString()
}
