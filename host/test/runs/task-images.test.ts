import { execFileSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { mkdir, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import ignore from 'ignore'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { imageMaxBytes } from '#specs/protocol/image.ts'
import { png } from '#specs/testing/images.ts'
import { patternOf, readTaskImages } from '../../runs/task-images.ts'

const picture = png(640, 480)
let folder: string
let root: string
let elsewhere: string

beforeAll(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'caisson-task-images-'))
  root = path.join(folder, 'work')
  elsewhere = path.join(folder, 'secret.png')
  await mkdir(path.join(root, 'shots'), { recursive: true })
  await writeFile(elsewhere, picture)
  const large = Buffer.concat([picture.subarray(0, 33), Buffer.alloc(900 * 1024), picture.subarray(33)])
  const files = {
    'a.png': picture,
    'shots/b !*.png': picture,
    'large.png': large,
    'huge.png': Buffer.concat([large, Buffer.alloc(imageMaxBytes)]),
    'cut.png': picture.subarray(0, -4),
    'picture.svg': Buffer.from('<svg xmlns="http://www.w3.org/2000/svg"/>'),
  }
  for (const [name, bytes] of Object.entries(files)) await writeFile(path.join(root, name), bytes)
  await symlink(elsewhere, path.join(root, 'out.png'))
  await symlink('a.png', path.join(root, 'in.png'))
  await symlink('/dev/zero', path.join(root, 'zero.png'))
  execFileSync('mkfifo', [path.join(root, 'fifo.png')])
})

afterAll(() => rm(folder, { recursive: true, force: true }))

describe('images of a task', () => {
  it('are files of the workspace by any of their names, with what they are [G.09]', () => {
    const sha256 = createHash('sha256').update(picture).digest('hex')
    const image = { sha256, type: 'image/png', width: 640, height: 480, sizeBytes: picture.length }
    const names = ['a.png', './shots/../a.png', path.join(root, 'a.png'), 'in.png', 'shots/b !*.png']
    const paths = ['a.png', 'a.png', 'a.png', 'a.png', 'shots/b !*.png']
    expect(readTaskImages(names, root)).toEqual(paths.map((file) => ({ path: file, image })))
  })

  it.each([
    ['../secret.png', 'outside of the workspace'],
    ['../nothing.png', 'outside of the workspace'],
    ['/etc/passwd', 'outside of the workspace'],
    ['out.png', 'outside of the workspace'],
    ['zero.png', 'outside of the workspace'],
    ['.', 'no regular file'],
    ['shots', 'no regular file'],
    ['fifo.png', 'no regular file'],
    ['missing.png', 'it does not exist'],
    ['cut.png', 'no whole PNG'],
    ['picture.svg', 'no whole PNG, JPEG, WebP or GIF image; convert it'],
    ['huge.png', `of at most ${imageMaxBytes}`],
  ])('are refused where they are none that a model could get: %s [G.09]', (file, why) => {
    expect(() => readTaskImages(['a.png', file], root)).toThrow(
      expect.objectContaining({ code: 'invalid_options', message: expect.stringContaining(why) }),
    )
    expect(() => readTaskImages([file], root)).toThrow(JSON.stringify(file))
  })

  it('are refused where one request has no room for them [G.09]', () => {
    expect(() =>
      readTaskImages(
        Array.from({ length: 4 }, () => 'large.png'),
        root,
      ),
    ).toThrow(/together they have/)
    expect(() =>
      readTaskImages(
        Array.from({ length: 9 }, () => 'a.png'),
        root,
      ),
    ).toThrow(/at most 8 images/)
  })

  it('come into the VM though they are ignored, and nothing else with them [G.09]', () => {
    const names = ['a.png', 'shots/b !*.png', '#1 [x]?.png', '!no.png', 'back\\slash.png']
    for (const name of names) {
      const [image] = readTaskImages(['a.png'], root)
      if (image === undefined) throw new Error('no image')
      const rules = ignore().add(patternOf({ ...image, path: name }))
      expect([name, ...names.filter((other) => rules.ignores(other))]).toEqual([name, name])
      expect(rules.ignores(`deep/${name}`)).toBe(false)
    }
  })
})
