// The agent's own sender against the host's receiver, over ports in memory.

import { mkdir, readFile, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { CaissonError } from '#specs/errors.ts'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import type { HostLink } from '../../agent/link/host-link.ts'
import { sendChanges } from '../../agent/workspace/send-changes.ts'
import type { DiskSpaceNeed } from '../../host/files/disk-space.ts'
import { ChangeStream, type CollectParts, collectFrom } from '../../host/runs/guest/change-stream.ts'
import { runId } from '../../host/test/support/run-values.ts'
import type { Manifest } from '../../host/workspace/index.ts'
import { createWorld } from './support.ts'

const manifest: Manifest = { root: '/w', device: '0', inode: '0', entries: new Map(), leftOut: [], bytes: 0 }
const content = Buffer.alloc(12 * 1024 * 1024, 'c')
const noWait = () => Promise.reject(new Error('nobody was to wait'))

/** A guest with one large new file. @param onStream called with each stream of changes, from the first on */
async function collect(
  given: Partial<CollectParts> & { readonly onStream?: (world: ReturnType<typeof createWorld>) => void },
) {
  const { onStream, ...parts } = given
  const merged = await temporaryFolder('merged')
  await writeFile(path.join(merged, 'big.bin'), content)
  const runDirectory = path.join(await temporaryFolder('run'), 'run')
  await mkdir(runDirectory)
  const changes = new ChangeStream(runId)
  await using world = createWorld({
    onStream: (stream, headers) => {
      changes.handleStream(stream, headers)
      onStream?.(world)
    },
  })
  const guest: HostLink = world.startGuest({
    handlers: {
      'workspace/collect': async (_, { signal }) => {
        const sent = await sendChanges(runId, guest.http, {
          merged,
          base: '/nowhere',
          upper: '/nowhere',
          signal,
        })
        return sent.ok ? sent : { ok: false, error: { code: 'failed', message: sent.error.message } }
      },
    },
  })
  await world.link.ready()
  const collected = await collectFrom({
    runId,
    runDirectory,
    manifest,
    link: world.link,
    changes,
    diskSpace: { wait: noWait },
    spareBytes: 0,
    ...parts,
  })
  return { collected, runDirectory, sessions: world.seen.sessions.length }
}

describe('a change set', () => {
  it('arrives whole although the session ends in its midst, again and again [C.03, W.01]', async () => {
    let streams = 0
    const { collected, runDirectory, sessions } = await collect({
      onStream: (world) => {
        streams += 1
        if (streams <= 3) setTimeout(() => world.link.restartSession('in the middle'), 5)
      },
    })
    expect(collected).toMatchObject({ ok: true, value: { contentBytes: content.length } })
    expect((await readFile(path.join(runDirectory, 'changes.bin'))).equals(content)).toBe(true)
    expect(sessions).toBeGreaterThan(3)
  })

  it('waits for room on the disk, with the guest that sends it, and is collected then [W.05]', async () => {
    const needs: DiskSpaceNeed[] = []
    const { collected } = await collect({
      spareBytes: 2 ** 52,
      diskSpace: {
        wait: async (need) => {
          needs.push(need)
          await new Promise((resolve) => setTimeout(resolve, 50))
        },
      },
    })
    expect(collected).toMatchObject({ ok: true, value: { contentBytes: content.length } })
    expect(needs[0]).toMatchObject({ what: 'the change set', neededBytes: expect.any(Number) })
    expect(needs[0]?.neededBytes).toBeGreaterThan(2 ** 52)
  })

  it('that nobody waits for any longer fails with the disk as the reason, not with the guest [W.05]', async () => {
    const { collected } = await collect({
      spareBytes: 2 ** 52,
      diskSpace: { wait: () => Promise.reject(new CaissonError('no_space', 'the disk is full: 3 free')) },
    })
    expect(collected).toMatchObject({
      ok: false,
      error: { of: 'host', failure: { code: 'no_space', message: 'the disk is full: 3 free' } },
    })
  })

  it('that the host cannot write fails with the reason of the host [W.05]', async () => {
    const { collected } = await collect({ runDirectory: '/proc/nowhere' })
    expect(collected).toMatchObject({
      ok: false,
      error: { of: 'host', failure: { message: expect.stringContaining('ENOENT') } },
    })
  })
})
