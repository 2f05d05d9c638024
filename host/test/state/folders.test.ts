import { chmod, lchown, mkdir, readdir, stat, symlink } from 'node:fs/promises'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { Host } from '../../host.ts'
import { checkFolder, prepareFolders, resolveFolders } from '../../state/folders.ts'

describe('state folders', () => {
  it('follow CAISSON_HOME and CAISSON_CACHE, then the XDG variables, then the home folder', () => {
    expect(resolveFolders({ HOME: '/h' })).toMatchObject({
      home: '/h/.local/state/caisson',
      cache: '/h/.cache/caisson',
    })
    expect(resolveFolders({ HOME: '/h', XDG_STATE_HOME: '/s', XDG_CACHE_HOME: 'relative' })).toMatchObject({
      home: '/s/caisson',
      cache: '/h/.cache/caisson',
    })
    expect(resolveFolders({ HOME: '/h', CAISSON_HOME: '/x', CAISSON_CACHE: '/y' })).toMatchObject({
      home: '/x',
      cache: '/y',
    })
  })

  it('are made for their owner alone, and refused when others may write to them', async () => {
    const base = await temporaryFolder('folders')
    const folders = resolveFolders({ HOME: base })
    await prepareFolders(folders)
    expect((await stat(folders.runs)).mode & 0o777).toBe(0o700)
    await chmod(folders.home, 0o777)
    await expect(prepareFolders(folders)).rejects.toThrow(
      /can be written by others \(mode 777\); run: chmod 700/,
    )
    await expect(checkFolder('/dev/null')).rejects.toThrow(/is not a folder/)
  })

  it('are refused, before anything is made, below a folder that others can write to', async () => {
    const base = await temporaryFolder('folders')
    const shared = path.join(base, 'shared')
    await mkdir(shared)
    await chmod(shared, 0o777)
    const folders = resolveFolders({ CAISSON_HOME: `${shared}/state`, CAISSON_CACHE: `${base}/cache` })
    await expect(prepareFolders(folders)).rejects.toThrow(
      /shared\/state is reached through .*shared, which can be written by others \(mode 777\).* set CAISSON_HOME/,
    )
    expect(await readdir(shared)).toEqual([])
    // As /tmp is: others can make things there, but not exchange what is somebody's.
    await chmod(shared, 0o1777)
    await prepareFolders(folders)
    await chmod(shared, 0o777)
    await expect(checkFolder(folders.home)).rejects.toThrow(/is reached through .*shared/)
  })

  it('are not read either where others could have placed VMs and runs: nobody else gets keys or gives changes [V.08]', async () => {
    const base = await temporaryFolder('folders')
    const home = path.join(base, 'state')
    const host = new Host({ env: { CAISSON_HOME: home, CAISSON_CACHE: `${base}/cache` } })
    expect(await host.vms.list()).toEqual([])
    expect(await host.runs.list()).toEqual([])
    await prepareFolders(host.folders)
    await chmod(home, 0o777)
    const refused = /is reached through .*state, which can be written by others/
    await expect(host.vms.list()).rejects.toThrow(refused)
    await expect(host.vms.find('vm')).rejects.toThrow(refused)
    await expect(host.runs.list()).rejects.toThrow(refused)
    await expect(host.attach('run-0')).rejects.toThrow(refused)
    await expect(host.changes('run-00000000000000000000')).rejects.toThrow(refused)
  })

  it('may be reached through links of this user or of root, as macOS and some homes have them', async () => {
    const base = await temporaryFolder('folders')
    await mkdir(path.join(base, 'real/deep'), { recursive: true })
    await symlink(path.join(base, 'real'), path.join(base, 'absolute'))
    await symlink('absolute/../absolute/deep', path.join(base, 'relative'))
    const folders = resolveFolders({ HOME: path.join(base, 'relative') })
    await prepareFolders(folders)
    expect((await stat(path.join(base, 'real/deep/.local/state/caisson/runs'))).isDirectory()).toBe(true)
    await chmod(path.join(base, 'real'), 0o777)
    await expect(prepareFolders(folders)).rejects.toThrow(/real, which can be written by others/)
  })

  it('are refused when a link or folder of somebody else leads to them, or nothing', async () => {
    const base = await temporaryFolder('folders')
    const link = path.join(base, 'link')
    await symlink('round', path.join(base, 'round'))
    await expect(checkFolder(path.join(base, 'round'))).rejects.toThrow(/cannot be used: ELOOP/)
    await symlink(path.join(base, 'nowhere'), link)
    const folders = resolveFolders({ CAISSON_HOME: link, CAISSON_CACHE: path.join(base, 'cache') })
    await expect(prepareFolders(folders)).rejects.toThrow(/cannot be used: ENOENT/)
    // Only root can make what belongs to another.
    if (process.getuid?.() !== 0) return
    await mkdir(path.join(base, 'nowhere'), { mode: 0o700 })
    await prepareFolders(folders)
    await lchown(link, 65534, 65534)
    await expect(prepareFolders(folders)).rejects.toThrow(/link, which is a symbolic link of user 65534/)
    const others = path.join(base, 'others')
    await mkdir(path.join(others, 'mine'), { recursive: true, mode: 0o700 })
    await lchown(others, 65534, 65534)
    await expect(checkFolder(path.join(others, 'mine'))).rejects.toThrow(/others, which belongs to user/)
  })

  it('are refused when they belong to somebody else', async () => {
    if (process.getuid?.() === 0) {
      const base = await temporaryFolder('folders')
      const { chown } = await import('node:fs/promises')
      await chown(base, 65534, 65534)
      await expect(checkFolder(base)).rejects.toThrow(/belongs to user 65534/)
    } else {
      await expect(checkFolder('/')).rejects.toThrow(/belongs to user 0/)
    }
  })
})
