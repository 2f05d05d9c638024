// Files of the state folder that somebody replaced by something that is no file.
import { execFileSync } from 'node:child_process'
import { mkdir, readFile, symlink, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { openRegular, openRegularSync } from '../../files/regular-file.ts'
import { BoundedLog } from '../../journal/bounded-log.ts'

const ways = ['read', 'append'] as const

describe('a file of the state folder', () => {
  it.each(ways)(
    'is refused where it is a FIFO, a device or a directory, without a wait: %s [S0.12 E.01]',
    async (way) => {
      const folder = await temporaryFolder('regular-file')
      const place = (name: string) => path.join(folder, name)
      execFileSync('mkfifo', [place('fifo')])
      await symlink('/dev/zero', place('device'))
      await mkdir(place('directory'))
      for (const name of ['fifo', 'device', 'directory']) {
        await expect(openRegular(place(name), way)).rejects.toThrow()
        expect(() => openRegularSync(place(name), way)).toThrow()
      }
    },
  )

  it('is appended to where it is one, and a log is refused where it is none [S0.12]', async () => {
    const folder = await temporaryFolder('regular-file')
    const file = path.join(folder, 'log')
    await writeFile(file, 'a')
    await using handle = await openRegular(file, 'append')
    await handle.writeFile('b')
    expect(await readFile(file, 'utf8')).toBe('ab')
    execFileSync('mkfifo', [path.join(folder, 'fifo')])
    await expect(BoundedLog.open(path.join(folder, 'fifo'), 10)).rejects.toThrow()
  })
})
