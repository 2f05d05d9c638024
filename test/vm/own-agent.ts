// An image whose agent is another program, for tests of the guest and of templates; its agent disk is bundled for the test.

import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { ensureAgentDisk } from '../../host/image/agent-disk.ts'
import { ensureRootImage } from '../../host/image/root-image.ts'
import { findSources } from '../../host/image/sources.ts'
import { resolveFolders } from '../../host/state/folders.ts'
import type { VmImage } from '../../host/vm/vm.ts'

/**
 * The image of this checkout with `entry`, a file of `test/vm/agents`, as its agent; disposing removes the agent's
 * disk. It comes from the user's cache, which {@link getTestImage} fills.
 */
export async function imageWithAgent(entry: string): Promise<{ readonly image: VmImage } & Disposable> {
  const cacheDir = mkdtempSync(join(tmpdir(), 'caisson-agent-'))
  const [{ recipe }, { cache }] = [findSources(), resolveFolders(process.env)]
  const { directory } = await ensureRootImage({ cacheDir: cache, recipe, arch: 'amd64' })
  const file = resolve(import.meta.dirname, 'agents', entry)
  const agent = await ensureAgentDisk({ cacheDir, agent: { entry: file, watched: [] } })
  const image = {
    kernel: join(directory, 'vmlinuz'),
    initramfs: join(directory, 'initramfs'),
    root: join(directory, 'root.erofs'),
    agentDisk: agent.disk,
  }
  return { image, [Symbol.dispose]: () => rmSync(cacheDir, { recursive: true, force: true }) }
}
