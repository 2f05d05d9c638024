/** Shared setup of the VM benchmarks: their own folders, the image, and a link to an agent without a task. */

import { mkdir } from 'node:fs/promises'
import type { IncomingHttpHeaders, ServerHttp2Stream } from 'node:http2'
import { join } from 'node:path'
import { type AgentLink, openAgentLink } from '../../host/guest/agent-link.ts'
import { ensureImage, type Image } from '../../host/image/image.ts'
import { type Folders, prepareFolders, resolveFolders } from '../../host/state/folders.ts'
import type { StartVmOptions, Vm } from '../../host/vm/vm.ts'
import { prepareMachine } from '../../host/vm/vm-command.ts'
import { reportProgress } from './figures.ts'

export const AGENT_DEADLINE_MS = 60_000

/** One run of the benchmark. */
export interface Bench {
  readonly image: Image
  readonly folders: Folders
  /** For files of the parts; removed at the end. On the file system of the VMs' folders, and not around them. */
  readonly work: string
  /** Cold starts, and the least number of warm ones. */
  readonly starts: number
}

/** Results of a part: figures and ratios by name. */
export type Figures = Readonly<Record<string, unknown>>

/** @param home an empty folder of the benchmark; the cache is the user's */
export async function openBench(home: string, starts: number): Promise<Bench> {
  const folders = resolveFolders({ ...process.env, CAISSON_HOME: join(home, 'state') })
  await prepareFolders(folders)
  const work = join(home, 'work')
  await mkdir(work)
  const image = await ensureImage({ cacheDir: folders.cache, onProgress: reportProgress })
  // Done once, so that no measured start includes the accelerator check.
  await prepareMachine({ image, folders }, false)
  return { image, folders, work, starts }
}

export function vmOptions({ image, folders }: Bench): StartVmOptions {
  return { image, folders }
}

export interface LinkOptions {
  readonly cloned?: boolean
  readonly onStream?: (stream: ServerHttp2Stream, headers: IncomingHttpHeaders) => void
  readonly onCompleted?: () => void
}

/** A link that answers the agent's requests. */
export function openLink(
  vm: Pick<Vm, 'rpc' | 'http'>,
  { cloned = false, onStream, onCompleted }: LinkOptions = {},
): AgentLink {
  return openAgentLink({
    rpc: vm.rpc,
    http: vm.http,
    cloned,
    onStream: onStream ?? (() => undefined),
    handlers: {
      onEvent: () => undefined,
      onDelta: () => undefined,
      requestApproval: async () => ({ ok: true, value: { decision: 'deny' } }),
      completeTask: async () => {
        onCompleted?.()
        return { ok: true, value: {} }
      },
      onLog: () => undefined,
    },
  })
}

/** @throws when the agent does not answer */
export async function waitForAgent(link: AgentLink): Promise<void> {
  const ready = await link.ready({ timeoutMs: AGENT_DEADLINE_MS })
  if (!ready.ok) throw new Error(ready.error.message)
}
