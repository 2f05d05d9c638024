import { appendFile, mkdir, readdir, readFile, rm, symlink, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { checkImage } from '../../doctor/doctor.ts'
import { errorFrom } from '../../image/build-root.ts'
import { ensureImage, findImage, type ImageOptions, verifyImage } from '../../image/image.ts'
import { requireTools } from '../../image/platform.ts'
import { makeAgent, makeRecipe, makeScratch } from './support.ts'

async function makeSources(folder: string, script?: string): Promise<NonNullable<ImageOptions['sources']>> {
  return { recipe: await makeRecipe(folder, script), agent: await makeAgent(folder) }
}

describe('an image', () => {
  it('is built once and then found, with absolute paths and its manifest [V.07]', async () => {
    await using scratch = await makeScratch()
    const options = { cacheDir: scratch.cacheDir, sources: await makeSources(scratch.folder) }
    const progress: string[] = []
    expect(await findImage(options)).toBeUndefined()
    const image = await ensureImage({ ...options, onProgress: (text) => progress.push(text) })
    expect(progress).toEqual(['image: pack small files', 'image: bundling the agent'])
    expect(await ensureImage(options)).toEqual(image)
    expect(await findImage(options)).toEqual(image)
    expect(await readFile(path.join(scratch.cacheDir, 'builds'), 'utf8')).toBe('built\n')
    expect(await readFile(image.kernel, 'utf8')).toBe('vmlinuz of the image\n')
    expect(path.basename(path.dirname(image.agentDisk))).toBe(image.agentDigest)
    expect(image.manifest.versions).toMatchObject({
      debian: 'bookworm',
      kernel: expect.stringMatching(/^6\./),
    })
  })

  it('is built by one of several that want it at once, and the others wait [V.07]', async () => {
    await using scratch = await makeScratch()
    const options = { cacheDir: scratch.cacheDir, sources: await makeSources(scratch.folder) }
    const images = await Promise.all(Array.from({ length: 12 }, () => ensureImage(options)))
    expect(new Set(images.map(({ root }) => root)).size).toBe(1)
    expect(await readFile(path.join(scratch.cacheDir, 'builds'), 'utf8')).toBe('built\n')
    const left = await readdir(scratch.cacheDir)
    expect(left.filter((name) => name.startsWith('build-'))).toEqual([])
    expect(await readdir(path.join(scratch.cacheDir, 'images'))).toHaveLength(1)
  })

  it('keeps its root when the agent changed, and gets a disk of the new agent [V.07]', async () => {
    await using scratch = await makeScratch()
    const options = { cacheDir: scratch.cacheDir, sources: await makeSources(scratch.folder) }
    const before = await ensureImage(options)
    await makeAgent(scratch.folder, 'good day')
    const after = await ensureImage(options)
    expect(after.key).toBe(before.key)
    expect(after.agentDigest).not.toBe(before.agentDigest)
    expect(await readFile(after.agentDisk, 'latin1')).toContain('good day')
    await makeAgent(scratch.folder)
    expect((await ensureImage(options)).agentDisk).toBe(before.agentDisk)
    expect(await readFile(path.join(scratch.cacheDir, 'builds'), 'utf8')).toBe('built\n')
  })

  it('that lacks the agent of this version alone is not called missing by the doctor [V.07 V.02]', async () => {
    await using scratch = await makeScratch()
    const options = { cacheDir: scratch.cacheDir, sources: await makeSources(scratch.folder) }
    expect(await checkImage(options)).toMatchObject({ status: 'warn', seen: 'not built yet' })
    const { key, kernel } = await ensureImage(options)
    expect(await checkImage(options)).toMatchObject({
      status: 'ok',
      kernel,
      seen: expect.stringContaining(key.slice(0, 12)),
    })
    await makeAgent(scratch.folder, 'good day')
    const seen = expect.stringMatching(/; the next run adds the agent of this version, which takes seconds$/)
    expect(await checkImage(options)).toMatchObject({ status: 'ok', kernel, seen })
  })

  it('gives the same agent disk for the same agent, to the byte [V.07]', async () => {
    await using first = await makeScratch()
    await using second = await makeScratch()
    const disks = [first, second].map(async (scratch) => {
      const image = await ensureImage({
        cacheDir: scratch.cacheDir,
        sources: await makeSources(scratch.folder),
      })
      return await readFile(image.agentDisk)
    })
    const [a, b] = await Promise.all(disks)
    expect(a?.equals(b ?? Buffer.alloc(0))).toBe(true)
  })

  it('takes the bundle of an installed package as it is [V.07]', async () => {
    await using scratch = await makeScratch()
    const bundle = path.join(scratch.folder, 'bundle')
    await mkdir(bundle)
    await writeFile(path.join(bundle, 'agent.cjs'), 'console.log("packaged")\n')
    const sources = { recipe: await makeRecipe(scratch.folder), agent: { bundle } }
    const image = await ensureImage({ cacheDir: scratch.cacheDir, sources })
    expect(await readFile(image.agentDisk, 'latin1')).toContain('console.log("packaged")')
  })

  it.each(['root', 'kernel', 'initramfs', 'agentDisk'] as const)(
    'is refused when a byte of its %s changed, and built anew when asked [V.07]',
    async (name) => {
      await using scratch = await makeScratch()
      const options = { cacheDir: scratch.cacheDir, sources: await makeSources(scratch.folder) }
      const image = await ensureImage(options)
      await appendFile(image[name], 'x')
      const refusal = { kind: 'image_damaged', message: expect.stringContaining(image[name]) }
      await expect(ensureImage(options)).rejects.toMatchObject(refusal)
      await expect(verifyImage(options)).rejects.toMatchObject(refusal)
      expect(await ensureImage({ ...options, replaceDamaged: true })).toEqual(image)
      expect(await verifyImage(options)).toEqual(image)
    },
  )

  it('is refused when its folder holds the manifest of another [V.07]', async () => {
    await using scratch = await makeScratch()
    const options = { cacheDir: scratch.cacheDir, sources: await makeSources(scratch.folder) }
    const { directory, manifest } = await ensureImage(options)
    const other = JSON.stringify({ ...manifest, key: 'f'.repeat(64) })
    await writeFile(path.join(directory, 'manifest.json'), other)
    await expect(findImage(options)).rejects.toMatchObject({
      kind: 'image_damaged',
      code: 'image_unavailable',
    })
  })
})

describe('a build that fails', () => {
  it('says what the recipe said, under its code, and leaves no image [V.07]', async () => {
    await using scratch = await makeScratch()
    const gone = 'the mirror no longer has: curl 7; run: caisson image build --update-lock'
    const script = `echo noise >&2; echo 'caisson-image: ERROR lock_unsatisfied: ${gone}' >&2; exit 1`
    const sources = await makeSources(scratch.folder, script)
    await expect(ensureImage({ cacheDir: scratch.cacheDir, sources })).rejects.toMatchObject({
      name: 'ImageError',
      kind: 'lock_unsatisfied',
      message: `VM image: ${gone}`,
    })
    expect(await readdir(path.join(scratch.cacheDir, 'images'))).toEqual([])
  })

  it('is not kept under the key of a recipe that changed meanwhile [V.07]', async () => {
    await using scratch = await makeScratch()
    const sources = await makeSources(scratch.folder)
    const guest = path.join(sources.recipe, 'guest/init')
    await appendFile(path.join(sources.recipe, 'build.sh'), `echo changed >>'${guest}'\n`)
    await expect(ensureImage({ cacheDir: scratch.cacheDir, sources })).rejects.toMatchObject({
      kind: 'build_failed',
      message: expect.stringContaining('changed during the build; start again'),
    })
    expect(await readdir(path.join(scratch.cacheDir, 'images'))).toEqual([])
  })

  it('shows the last words of a recipe that says nothing of its own [V.07]', () => {
    expect(errorFrom('tar: broken\n', 2)).toMatchObject({
      kind: 'build_failed',
      message: expect.stringContaining('status 2: tar: broken'),
    })
    expect(errorFrom('caisson-image: ERROR invented: x', 1).kind).toBe('build_failed')
  })

  it('ends with all its programs when cancelled, and can be started again [V.07]', async () => {
    await using scratch = await makeScratch()
    const script = 'sleep 60 & echo $! >"$4/sleeper"; echo "step sleeping"; wait'
    const sources = await makeSources(scratch.folder, script)
    const stop = new AbortController()
    const build = ensureImage({
      cacheDir: scratch.cacheDir,
      sources,
      signal: stop.signal,
      onProgress: () => stop.abort(),
    })
    await expect(build).rejects.toMatchObject({ code: 'cancelled' })
    const pid = Number(await readFile(path.join(scratch.cacheDir, 'sleeper'), 'utf8'))
    await expect.poll(() => isRunning(pid)).toBe(false)
    expect(await readdir(path.join(scratch.cacheDir, 'images'))).toEqual([])
  })

  it('names every missing program at once, with the line that installs them [V.07]', async () => {
    const tools = { sh: 'dash', 'mkfs.invented': 'invented-utils', 'also-invented': 'also' }
    await expect(requireTools(tools)).rejects.toMatchObject({
      kind: 'tools_missing',
      message: expect.stringMatching(
        /mkfs\.invented, also-invented; install them: .*install.* invented-utils also$/,
      ),
    })
  })

  it('says that the cache cannot be written, and takes a whole image from one that cannot [V.07]', async () => {
    await using scratch = await makeScratch()
    const sources = await makeSources(scratch.folder)
    // For root too: in place of a folder, a link to where there is none.
    await symlink('nowhere', path.join(scratch.cacheDir, 'images'))
    await expect(ensureImage({ cacheDir: scratch.cacheDir, sources })).rejects.toMatchObject({
      name: 'ImageError',
      kind: 'cache_unwritable',
      message: expect.stringMatching(/cache .*: E[A-Z]+: .*CAISSON_CACHE/),
    })
    await rm(path.join(scratch.cacheDir, 'images'))
    const image = await ensureImage({ cacheDir: scratch.cacheDir, sources })
    const agents = path.join(scratch.cacheDir, 'agents')
    const [note = ''] = (await readdir(agents)).filter((name) => name.endsWith('.json'))
    await rm(path.join(agents, note))
    // Nothing can be put in its place.
    await mkdir(path.join(agents, note, 'full'), { recursive: true })
    expect(await ensureImage({ cacheDir: scratch.cacheDir, sources })).toEqual(image)
  })

  it('names the place of an agent that does not compile [V.07]', async () => {
    await using scratch = await makeScratch()
    const sources = await makeSources(scratch.folder)
    await writeFile(path.join(scratch.folder, 'agent/greeting.ts'), 'export const = 1')
    await expect(ensureImage({ cacheDir: scratch.cacheDir, sources })).rejects.toMatchObject({
      kind: 'bundle_failed',
      message: expect.stringContaining('greeting.ts'),
    })
  })
})

async function isRunning(pid: number): Promise<boolean> {
  const text = await readFile(`/proc/${pid}/stat`, 'utf8').catch(() => '')
  return text !== '' && !/^\d+ \(.*\) [ZX]/.test(text)
}
