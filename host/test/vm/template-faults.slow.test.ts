import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { chmod, open, readdir } from 'node:fs/promises'
import { userInfo } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import type { Folders } from '../../state/folders.ts'
import { TemplateStore } from '../../vm/template/template-store.ts'
import { sweepDeadVms } from '../../vm/vm-folder.ts'
import { copyMachines, makeOwnFolders } from '../support/templates.ts'
import { getTestImage, isRunning, waitUntilGone } from '../support/vm.ts'
import type { WarmHostLine, WarmHostOrder } from '../support/warm-host.ts'

const PROGRAM = fileURLToPath(new URL('../support/warm-host.ts', import.meta.url))
const children: ChildProcess[] = []
afterEach(() => {
  for (const child of children.splice(0)) child.kill('SIGKILL')
})

/** A host process in a process group of its own; `wrap` is put before it. */
async function startHost(
  folders: Folders,
  order: Omit<WarmHostOrder, 'image'>,
  wrap: readonly string[] = [],
) {
  const image = await getTestImage()
  const [command = '', ...args] = [
    ...wrap,
    process.execPath,
    '--conditions=caisson-source',
    PROGRAM,
    JSON.stringify({ ...order, image }),
  ]
  const child = spawn(command, args, {
    env: { ...process.env, CAISSON_HOME: folders.home, CAISSON_CACHE: folders.cache },
    stdio: ['pipe', 'pipe', 'inherit'],
  })
  children.push(child)
  if (!child.stdout) throw new Error('no stdout')
  const said: WarmHostLine[] = []
  const lines = createInterface({ input: child.stdout })
  lines.on('line', (line) => said.push(JSON.parse(line) as WarmHostLine))
  const ended = once(child, 'close')
  return {
    child,
    said,
    /** The `count`th line of this kind. */
    async next<K extends string>(kind: K, count = 1): Promise<Extract<WarmHostLine, Record<K, unknown>>> {
      for (;;) {
        const found = said.filter((line) => kind in line)[count - 1]
        if (found) return found as Extract<WarmHostLine, Record<K, unknown>>
        await Promise.race([once(lines, 'line'), ended])
        if (child.exitCode !== null) throw new Error(`it ended: ${JSON.stringify(said)}`)
      }
    },
    async end(): Promise<void> {
      child.stdin?.end()
      await ended
    },
    async kill(): Promise<void> {
      child.kill('SIGKILL')
      await ended
    },
  }
}

const templatesIn = async ({ cache }: Folders) => (await readdir(join(cache, 'templates'))).toSorted()

describe('templates that several processes need', () => {
  /** For those that may find a template: the first makes it. */
  let own: Awaited<ReturnType<typeof makeOwnFolders>>
  beforeAll(async () => {
    own = await makeOwnFolders()
  })
  afterAll(() => own[Symbol.dispose]())

  it('are made by one of two processes that need one at once [V.01]', async () => {
    const order = { vms: 1, warmUp: 'hello' } as const
    const hosts = await Promise.all([startHost(own.folders, order), startHost(own.folders, order)])
    for (const host of hosts)
      expect(await host.next('started')).toMatchObject({ started: { cloned: true, coldReason: null } })
    expect(hosts.flatMap(({ said }) => said.filter((line) => 'warming' in line))).toHaveLength(1)
    const told = hosts.flatMap(({ said }) =>
      said.flatMap((line) => ('progress' in line ? line.progress : [])),
    )
    expect(told.filter((text) => /process \d+ is making it/.test(text))).toHaveLength(1)
    for (const host of hosts) await host.end()
    expect(await templatesIn(own.folders)).toEqual([expect.stringMatching(/^[0-9a-f]{32}$/)])
  })

  it('are made by another process when the maker is killed, and nothing of it stays [V.01 V.06]', async () => {
    using fresh = await makeOwnFolders()
    const killed = await startHost(fresh.folders, { vms: 1, warmUp: 'hang' })
    const { warming: pid } = await killed.next('warming')
    await killed.kill()
    expect(await waitUntilGone(pid)).toBe(true)
    expect(await templatesIn(fresh.folders)).toHaveLength(2)
    const next = await startHost(fresh.folders, { vms: 1, warmUp: 'hello' })
    expect(await next.next('started')).toMatchObject({ started: { cloned: true } })
    await next.end()
    expect(await templatesIn(fresh.folders)).toEqual([expect.stringMatching(/^[0-9a-f]{32}$/)])
    await sweepDeadVms(fresh.folders.vms)
    expect(await readdir(fresh.folders.vms)).toEqual([])
  })

  it('serve on when a host with sixteen VMs from one is killed, and no VM stays [V.01 V.06]', async () => {
    const order = { vms: 16, warmUp: 'hello' } as const
    const host = await startHost(own.folders, order)
    await host.next('started', order.vms)
    const pids = host.said.flatMap((line) => ('started' in line ? line.started.pid : []))
    expect(new Set(pids).size).toBe(order.vms)
    expect((await Promise.all(pids.map(isRunning))).every(Boolean)).toBe(true)
    await host.kill()
    for (const pid of pids) expect(await waitUntilGone(pid)).toBe(true)
    expect(await sweepDeadVms(own.folders.vms)).toHaveLength(order.vms)
    expect(await readdir(own.folders.vms)).toEqual([])
    expect(await new TemplateStore(own.folders.cache).list()).toMatchObject([{ record: { kind: 'mapped' } }])
  })

  it('are made anew when one byte of memory changed under them [V.01]', async () => {
    const order = { vms: 1, warmUp: 'hello' } as const
    const first = await startHost(own.folders, order)
    await first.next('started')
    await first.end()
    const [name = ''] = await templatesIn(own.folders)
    const memory = await open(join(own.folders.cache, 'templates', name, 'memory'), 'r+')
    await memory.write(Buffer.from([1]), 0, 1, 4096)
    await memory.close()
    const second = await startHost(own.folders, order)
    expect(await second.next('started')).toMatchObject({ started: { cloned: true } })
    expect(second.said.some((line) => 'warming' in line)).toBe(true)
    await second.end()
  })
})

describe('a cache on a disk that is short', () => {
  it.each([
    ['from the beginning', '300m', 'hello', /^a template needs 700 MiB free in .*, and there are \d+ MiB$/],
    [
      'in the middle of making a template',
      '900m',
      'fill',
      /^a template needs 700 MiB free in .*, and there are 0 MiB$/,
    ],
  ] as const)(
    '%s leads to a boot that says so, and nothing stays of it [V.01]',
    async (_, size, warmUp, said) => {
      using own = await makeOwnFolders()
      const { cache } = own.folders
      // A file system of its own, seen by that process alone, so that it ends with it.
      const place = await makeOwnFolders()
      using _place = place
      const listing = join(place.folders.home, 'listing')
      const script = `mount -t tmpfs -o mode=700,size=${size} none "$CAISSON_CACHE" && cp -r ${place.folders.cache}/. "$CAISSON_CACHE" && "$@"; code=$?; ls -A "$CAISSON_CACHE/templates" > ${listing}; exit $code`
      copyMachines(place.folders.cache)
      await chmod(cache, 0o700)
      const alone = ['unshare', '--mount', ...(userInfo().uid === 0 ? [] : ['--map-root-user'])]
      const host = await startHost(own.folders, { vms: 1, warmUp }, [...alone, 'sh', '-c', script, 'sh'])
      const { started } = await host.next('started')
      expect(started).toMatchObject({ cloned: false, coldReason: expect.stringMatching(said) })
      await host.end()
      const handle = await open(listing)
      expect((await handle.readFile('utf8')).trim()).toBe('')
      await handle.close()
    },
  )
})
