import { chmodSync, chownSync, cpSync, mkdirSync, realpathSync, symlinkSync } from 'node:fs'
import path from 'node:path'
import { beforeEach, describe, expect, it } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { requireTools } from '../../image/platform.ts'
import { describeLeftOut, findProgram, searchProgram, trustedSearchPath } from '../../processes/programs.ts'
import { checkDirectory } from '../../workspace/directory-check.ts'

let base: string
beforeEach(async () => {
  base = realpathSync(await temporaryFolder('programs'))
})

/** A folder with the program `name` in it. */
function folderWith(folder: string, mode = 0o755, name = 'tool'): string {
  const full = path.join(base, folder)
  mkdirSync(full, { recursive: true })
  cpSync('/bin/true', path.join(full, name))
  chmodSync(path.join(full, name), 0o755)
  chmodSync(full, mode)
  return full
}

/** What is run when PATH names these folders, and what is said of the others. */
async function search(...folders: string[]) {
  const found = await searchProgram('tool', folders.join(':'))
  return { path: found.path, said: describeLeftOut(found) }
}

describe('a program of the host', () => {
  it('is the first on PATH that only this user and root can change, by its real path [V.10]', async () => {
    const good = folderWith('good')
    symlinkSync(good, path.join(base, 'link'))
    expect(await search(path.join(base, 'none'), path.join(base, 'link'), folderWith('later'))).toEqual({
      path: path.join(good, 'tool'),
      said: '',
    })
    expect(await findProgram('sh')).toMatch(/^\/.*sh$/)
  })

  it("is never one of a project's packages, and the message says so [V.10]", async () => {
    const packages = folderWith('project/node_modules/.bin')
    symlinkSync(packages, path.join(base, 'bin'))
    for (const folder of [packages, path.join(base, 'bin')]) {
      const found = await search(folder)
      expect(found.path).toBeUndefined()
      expect(found.said).toContain(`not used: "${folder}/tool" (a project's packages put programs there)`)
    }
  })

  it('never comes from an entry of PATH that depends on the current directory [V.10]', async () => {
    const relative = path.relative(process.cwd(), folderWith('here'))
    expect((await search(relative)).said).toContain('relative path')
    expect((await search(relative)).path).toBeUndefined()
    const inCwd = await searchProgram('biome.json', '')
    expect(inCwd.path).toBeUndefined()
  })

  it('never comes from a workspace, nor by a link into one [V.10]', async () => {
    const inside = folderWith('workspace/bin')
    const outside = path.join(base, 'outside')
    mkdirSync(outside)
    symlinkSync(path.join(inside, 'tool'), path.join(outside, 'tool'))
    expect((await search(outside)).path).toBe(path.join(inside, 'tool'))
    expect(checkDirectory(path.join(base, 'workspace'), { ownFolders: [] }).ok).toBe(true)
    for (const folder of [inside, outside]) {
      const found = await search(folder, folderWith('good'))
      expect(found.path).toBe(path.join(base, 'good/tool'))
      expect(found.said).toContain('it lies in a workspace')
    }
  })

  it.each([
    ['is writable by all', 0o777],
    ['is writable by all, though sticky', 0o1777],
  ])('never comes from a folder that %s [V.10]', async (_, mode) => {
    const shared = folderWith('shared', mode)
    const found = await search(shared)
    expect(found.path).toBeUndefined()
    expect(found.said).toContain('can be written by others')
    expect((await trustedSearchPath(shared)).split(':')).not.toContain(shared)
  })

  it("may come from a folder of this user's own group, and never from one that another group can write [V.10]", async () => {
    const [uid, gid] = [process.getuid?.() ?? 0, process.getgid?.() ?? 0]
    const shared = folderWith('shared', 0o775)
    // A group of the same number as the user is the user's alone.
    expect((await search(shared)).path !== undefined).toBe(gid === 0 || gid === uid)
    if (uid !== 0) return
    chownSync(shared, 0, 50)
    expect((await search(shared)).said).toContain('can be written by the group 50 (mode 775)')
    chownSync(shared, 65534, 0)
    chmodSync(shared, 0o755)
    expect((await search(shared)).said).toContain('belongs to user 65534')
  })

  it('never lies below a folder that others can exchange, nor can be written by them itself [V.10]', async () => {
    const below = folderWith('shared/deep/bin')
    chmodSync(path.join(base, 'shared'), 0o777)
    expect((await search(below)).said).toContain(`"${base}/shared" can be written by others (mode 777)`)
    const good = folderWith('good')
    chmodSync(path.join(good, 'tool'), 0o757)
    expect((await search(good)).said).toContain('it can be written by others')
  })

  it('is reported as missing with what was left out and why [V.10]', async () => {
    const shared = folderWith('shared', 0o777, 'caisson-no-such-tool')
    const before = process.env.PATH
    try {
      process.env.PATH = `${shared}:${before}`
      await expect(requireTools({ 'caisson-no-such-tool': 'some-package' })).rejects.toThrow(
        /programs are missing: caisson-no-such-tool; not used: ".*shared\/caisson-no-such-tool" \(".*shared" can be written/,
      )
    } finally {
      process.env.PATH = before
    }
  })

  it('is looked for by scripts of the host in the same folders alone [V.10]', async () => {
    const good = folderWith('good')
    const search = ['', 'bin', folderWith('p/node_modules/.bin'), good, good, path.join(base, 'none')]
    const folders = (await trustedSearchPath(search.join(':'))).split(':')
    expect(folders[0]).toBe(good)
    expect(folders.slice(1)).toEqual(expect.arrayContaining(['/usr/bin']))
    expect(folders.filter((folder) => folder.startsWith(base))).toEqual([good])
  })
})
