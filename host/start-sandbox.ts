/** Starts a VM without a task, whose sandbox the application works in. */
import { CaissonError } from '#specs/errors.ts'
import { VmDirectory } from './control/vms.ts'
import type { SandboxOptions } from './host-options.ts'
import { keptBoundsOf } from './kept-bounds.ts'
import {
  type HostState,
  prepareImage,
  requireAccelerator,
  requireDirectory,
  resolveEgress,
} from './resolve-run.ts'
import { requireRoomForRun } from './runs/storage-bounds.ts'
import { Sandbox } from './sandbox/sandbox.ts'
import { openSandboxNetwork } from './sandbox/sandbox-network.ts'
import { StandaloneVm } from './sandbox/standalone-vm.ts'
import { Secrets } from './secrets/secrets.ts'

/**
 * @param onEnd called when the sandbox ends
 * @throws {CaissonError} where the VM cannot be started
 */
export async function startSandbox(
  options: SandboxOptions,
  { folders, settings, secrets: changes }: Pick<HostState, 'folders' | 'settings' | 'secrets'>,
  onEnd: (sandbox: Sandbox) => void,
): Promise<Sandbox> {
  const { workspace, vm, egress, signal } = options
  await requireAccelerator(vm ?? {}, folders, signal)
  const config = await settings.config()
  const policy = resolveEgress(config, egress?.rules)
  const network = settings.network(config)
  const secrets =
    options.secrets === undefined
      ? {}
      : {
          secrets: requireSecrets(
            options.secrets,
            new Secrets(config.secrets, settings.resolveKey, changes, { only: options.secrets }),
          ),
        }
  const directory = workspace === undefined ? {} : { directory: requireDirectory(workspace, folders) }
  const bench = await StandaloneVm.open({
    image: await prepareImage(options, folders),
    folders,
    network: (log) => openSandboxNetwork({ policy, network, log, ...secrets }),
    ...directory,
    ...(vm === undefined ? {} : { vm }),
    ...(signal === undefined ? {} : { signal }),
  })
  const end = () => bench[Symbol.asyncDispose]()
  // A start that is aborted ends the VM at once, whatever its agent is doing.
  const onAbort = (): void => void end().catch(() => undefined)
  signal?.addEventListener('abort', onAbort, { once: true })
  try {
    await bench.ready
    signal?.throwIfAborted()
    const sandbox: Sandbox = await Sandbox.open(new VmDirectory(folders).socketOf(bench.vm.id), {
      stopped: bench.stopped,
      exited: bench.vm.exited,
      collect: async () => {
        await requireRoomForRun(folders.runs, keptBoundsOf(config))
        return await bench.collect()
      },
      [Symbol.asyncDispose]: async () => {
        onEnd(sandbox)
        await end()
      },
    })
    signal?.throwIfAborted()
    return sandbox
  } catch (error) {
    await end()
    throw error
  } finally {
    signal?.removeEventListener('abort', onAbort)
  }
}

/** @throws {CaissonError} `invalid_options` where one of the names is no secret */
function requireSecrets(names: readonly string[], secrets: Secrets): Secrets {
  const known = secrets.list().map(({ name }) => name)
  const unknown = names.find((name) => !known.includes(name))
  if (unknown === undefined) return secrets
  throw new CaissonError(
    'invalid_options',
    `the sandbox cannot use the secret ${JSON.stringify(unknown)}: no secret has this name; set it in the configuration or with host.secrets.set`,
  )
}
