import { execFile } from 'node:child_process'
import { mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { describe, expect, it } from 'vitest'
import { perTier } from '#specs/testing/tier.ts'
import { bundleAgent, digestOf } from '../../image/agent-bundle.ts'
import { compileAgent } from '../../image/agent-cache.ts'
import { makeScratch } from './support.ts'

const run = promisify(execFile)
const realEntry = path.resolve(import.meta.dirname, '../../../agent/main.ts')

/** What the start of an agent prints: one that evaluates `early`, and imports `late` when it is started. */
const source = `
import { basename } from 'node:path'
console.log('evaluated')
export function startAgent(): void {
  console.log('started', basename('/a/\u00e9'))
  void import('./late.ts').then(({ late }) => console.log(late))
}
`

/** An agent that has grown, and then has nothing to do for a while. */
const growing = `
export function startAgent(): void {
  const kept = Array.from({ length: 200_000 }, (_, index) => ({ index, text: String(index) }))
  setTimeout(() => console.log(kept.length), 1_000)
}
`

/** Writes the files of the bundle of `main` to a folder. @returns the folder */
async function writeBundle(folder: string, main: string): Promise<string> {
  const [agent, out] = [path.join(folder, 'agent'), path.join(folder, 'out')]
  await Promise.all([mkdir(agent), mkdir(out)])
  await writeFile(path.join(agent, 'main.ts'), main)
  await writeFile(path.join(agent, 'late.ts'), `console.log('imported')\nexport const late = 'late'\n`)
  for (const [name, content] of await bundleAgent(path.join(agent, 'main.ts')))
    await writeFile(path.join(out, name), content)
  return out
}

/** As the guest starts it: nothing but the entry, in a folder that Node knows nothing of. */
function start(out: string, flags: readonly string[] = []) {
  return run(process.execPath, [...flags, path.join(out, 'agent.cjs')], { env: {} })
}

async function cacheOf(out: string): Promise<string> {
  const name = (await readdir(out)).find((file) => file.endsWith('.cache'))
  return path.join(out, name ?? 'no cache')
}

describe('the bundle of an agent', () => {
  it('starts once with code that V8 takes, and imports late what the source imports late [V.01]', async () => {
    await using scratch = await makeScratch()
    const { stdout, stderr } = await start(await writeBundle(scratch.folder, source))
    expect(stdout).toBe('evaluated\nstarted é\nimported\nlate\n')
    expect(stderr).toBe('')
  })

  it('starts without compiled code, and says so [V.01]', async () => {
    await using scratch = await makeScratch()
    const out = await writeBundle(scratch.folder, source)
    await rm(await cacheOf(out))
    const { stdout, stderr } = await start(out)
    expect(stdout).toContain('late\n')
    expect(stderr).toContain('saw no such file')
  })

  it('starts when V8 refuses the code, and says so [V.01]', async () => {
    await using scratch = await makeScratch()
    const out = await writeBundle(scratch.folder, source)
    const code = await readFile(await cacheOf(out))
    // The hash of V8's version follows a magic number.
    code.writeUInt32LE((code.readUInt32LE(4) ^ 1) >>> 0, 4)
    await writeFile(await cacheOf(out), code)
    const { stdout, stderr } = await start(out)
    expect(stdout).toContain('late\n')
    expect(stderr).toContain('saw that V8 refuses it')
  })

  it('collects no garbage for want of other work, as each copy of it would for itself [V.01]', async () => {
    await using scratch = await makeScratch()
    const out = await writeBundle(scratch.folder, growing)
    const flags = ['--trace-gc', '--trace-memory-reducer', '--gc-memory-reducer-start-delay-ms=100']
    const { stdout } = await start(out, flags)
    // V8 asked itself whether to, and left it for good.
    expect(stdout).toMatch(/Memory reducer: (low|high) alloc/)
    expect(stdout).not.toMatch(/Memory reducer: (started|waiting)|Mark-Compact/)
  })

  it('leaves out what the agent never asks of its libraries, and Node loads nothing for that [V.07]', async () => {
    await using scratch = await makeScratch()
    const bundle = await bundleAgent(realEntry)
    const told = Buffer.from(bundle.get('packages.json') ?? '').toString()
    expect(told).toContain('"pino"')
    expect(told).not.toMatch(/"(ajv|ajv-formats|sonic-boom|thread-stream)"/)
    // As large as all else that the agent loads when it starts.
    expect(Buffer.from(bundle.get('main.js') ?? '').toString()).not.toContain('AGFzbQ')
    for (const [name, content] of bundle) await writeFile(path.join(scratch.folder, name), content)
    const list = path.join(scratch.folder, 'list.cjs')
    await writeFile(
      list,
      'setImmediate(() => { console.log(process.moduleLoadList.join()); process.exit() })',
    )
    const { stdout } = await start(scratch.folder, ['-r', list])
    expect(stdout).toMatch(/NativeModule net\b/)
    expect(stdout).not.toMatch(/NativeModule (assert|worker_threads|sqlite|http2)\b/)
  })

  it('says what it does without where that is needed after all [V.07]', async () => {
    await using scratch = await makeScratch()
    const pino = fileURLToPath(import.meta.resolve('pino'))
    const main = `
      import { pino } from ${JSON.stringify(pino)}
      export const startAgent = () => {
        pino({}, { write: (line: string) => console.log(JSON.parse(line).msg) }).info('to a stream of its own')
        try { pino() } catch (error) { console.log(String(error)) }
      }`
    const { stdout } = await start(await writeBundle(scratch.folder, main))
    expect(stdout).toContain('to a stream of its own\n')
    expect(stdout).toContain(
      "Error: sonic-boom, imported by node_modules/pino/, is not part of the agent's bundle: the log goes to a",
    )
  })

  it('has the same bytes each time, the compiled code included [V.07]', async () => {
    const [first, second] = [await bundleAgent(realEntry), await bundleAgent(realEntry)]
    expect([...first.keys()]).toContain(`main-${process.version}-${process.arch}.cache`)
    expect(digestOf(first)).toBe(digestOf(second))
  })

  it('has the same code however far V8 came with optimizing while it was compiled [V.07]', async () => {
    const main = (await bundleAgent(realEntry)).get('main.js') ?? new Uint8Array()
    const codes = Array.from({ length: perTier(6, 20) }, () =>
      Buffer.from(compileAgent(main)).toString('base64'),
    )
    expect(new Set(codes).size).toBe(1)
  }, 300_000)

  it('is refused, with what Node said, when it cannot be evaluated [V.07]', async () => {
    await using scratch = await makeScratch()
    await expect(writeBundle(scratch.folder, `throw new Error('no agent')`)).rejects.toMatchObject({
      kind: 'bundle_failed',
      message: expect.stringContaining('no agent'),
    })
  })
})
