import { chmod, stat } from 'node:fs/promises'
import { describe, expect, it } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
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
