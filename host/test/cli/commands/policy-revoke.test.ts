import { mkdir } from 'node:fs/promises'
import path from 'node:path'
import { PassThrough } from 'node:stream'
import { text } from 'node:stream/consumers'
import { describe, expect, it } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { runCli } from '../../../cli/main.ts'
import { PersistentGrants } from '../../../egress/persistent-grants.ts'
import { resolveFolders } from '../../../state/folders.ts'

async function makePlace() {
  const root = await temporaryFolder('policy-revoke')
  const env = { HOME: root, CAISSON_HOME: path.join(root, 'home'), CAISSON_CACHE: path.join(root, 'cache') }
  const folders = resolveFolders(env)
  await mkdir(folders.locks, { recursive: true, mode: 0o700 })
  const caisson = async (...argv: string[]) => {
    const [stdout, stderr] = [new PassThrough(), new PassThrough()]
    const code = await runCli(argv, { stdin: new PassThrough(), stdout, stderr, env, version: '0' })
    stdout.end()
    stderr.end()
    return { code, stdout: await text(stdout), stderr: await text(stderr) }
  }
  return { lasting: new PersistentGrants(folders), caisson }
}

describe('caisson policy revoke', () => {
  it('lists what was answered for always and takes it back by its number [S1.11, G.02]', async () => {
    const { lasting, caisson } = await makePlace()
    expect((await caisson('policy', 'revoke')).stdout).toBe('no permanent grants\n')
    const runId = 'run-00000000000000000001'
    await lasting.add([{ effect: 'allow', host: 'a.example' }], runId)
    await lasting.add([{ effect: 'deny', host: 'b.example', schemes: ['https'], ports: [443] }], runId)
    const { stdout } = await caisson('policy', 'revoke')
    expect(stdout).toMatch(/^1 {2}\S+ \S+ \S+ {2}allow a\.example \(granted permanently\) · asked in run-/)
    expect(stdout).toContain('the user denied b.example permanently')
    expect((await caisson('policy', 'revoke', '2')).stdout).toMatch(/^revoked 2 /)
    expect(lasting.list().map(({ id }) => id)).toEqual([1])
  })

  it('revokes nothing when one of the numbers is not there', async () => {
    const { lasting, caisson } = await makePlace()
    await lasting.add([{ effect: 'allow', host: 'a.example' }], 'run-00000000000000000001')
    const { code, stderr } = await caisson('policy', 'revoke', '1', '7')
    expect(code).toBe(2)
    expect(stderr).toContain('no grant has the number 7')
    expect(lasting.list()).toHaveLength(1)
  })
})
