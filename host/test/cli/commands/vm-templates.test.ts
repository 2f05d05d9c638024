import { mkdir, readdir, truncate, utimes } from 'node:fs/promises'
import path from 'node:path'
import { PassThrough } from 'node:stream'
import { text } from 'node:stream/consumers'
import { describe, expect, it } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { runCli } from '../../../cli/main.ts'
import { TemplateFailures } from '../../../vm/template/template-failures.ts'
import { writeTemplate } from '../../support/templates.ts'

const [current, old, damaged] = ['a', 'b', 'c'].map((digit) => digit.repeat(32)) as [string, string, string]

/** A cache with a good template, one of ten days ago, a damaged one, and a failure. */
async function makePlace() {
  const root = await temporaryFolder('vm-templates')
  const cache = path.join(root, 'cache')
  await mkdir(cache, { mode: 0o700 })
  const [, { directory }] = [
    await writeTemplate(cache, current),
    await writeTemplate(cache, old, 'plain'),
    await writeTemplate(cache, damaged),
  ]
  const then = new Date(Date.now() - 10 * 24 * 60 * 60 * 1000)
  await utimes(path.join(directory, 'used'), then, then)
  await truncate(path.join(cache, 'templates', damaged, 'state'), 1)
  await new TemplateFailures(path.join(cache, 'templates')).note(damaged, 'mapped', 'no \u001b[2Jmapping')
  const env = { HOME: root, CAISSON_HOME: path.join(root, 'home'), CAISSON_CACHE: cache }
  const caisson = async (...argv: string[]) => {
    const [stdout, stderr] = [new PassThrough(), new PassThrough()]
    const code = await runCli(argv, { stdin: new PassThrough(), stdout, stderr, env, version: '0' })
    stdout.end()
    stderr.end()
    return { code, stdout: await text(stdout), stderr: await text(stderr) }
  }
  return { folder: path.join(cache, 'templates'), caisson }
}

describe('caisson vm templates', () => {
  it('shows how each one starts VMs, its size, age and last use, what is damaged, and what could not be made [V.01]', async () => {
    const { caisson } = await makePlace()
    const { code, stdout } = await caisson('vm', 'templates')
    expect(code).toBe(0)
    const lineOf = (name: string) => stdout.split('\n').find((line) => line.startsWith(name.slice(0, 12)))
    expect(lineOf(current)).toMatch(/1\.0 MB +mapped +\S+ \wB +now, in 0\.0 s +now +7\.2\.22 +intact$/)
    expect(lineOf(old)).toMatch(/ loaded .* 10 d ago /)
    expect(lineOf(damaged)).toContain('state was changed')
    expect(stdout).toMatch(
      /c{12} +loaded whole since it failed \(now\), tried again in (10|9) min \d+ s: mapped memory: no \\e\[2Jmapping/,
    )
  })

  it('removes what is old on request, and everything only with --all [V.01]', async () => {
    const { caisson, folder } = await makePlace()
    expect((await caisson('vm', 'templates', '--all')).code).toBe(2)
    expect((await caisson('vm', 'templates', '--prune')).stdout).toMatch(/^Removed 1 template, /)
    expect(await readdir(folder)).toHaveLength(3)
    const again = await caisson('vm', 'templates', '--prune')
    expect(again.stdout).toContain('to remove all of them, add --all')
    const all = await caisson('vm', 'templates', '--prune', '--all')
    expect(all.stdout).toMatch(/^Removed 2 templates, .*\nno templates/)
    expect(await readdir(folder)).toEqual([])
    const none = await caisson('vm', 'templates', '--prune', '--all')
    expect(none.stdout).toBe('There was nothing to remove.\nno templates; the next run creates one\n')
  })

  it('gives the same to a program as one line of JSON [V.01 H.01]', async () => {
    const { caisson } = await makePlace()
    const { stdout } = await caisson('vm', 'templates', '--prune', '--json')
    const [line, ...rest] = stdout.trimEnd().split('\n')
    expect(rest).toEqual([])
    const { templates, failures, removed } = JSON.parse(line ?? '') as Record<string, { name: string }[]>
    expect(removed).toMatchObject([{ name: old }])
    const byName = Object.fromEntries((templates ?? []).map((template) => [template.name, template]))
    expect(byName[current]).toMatchObject({ isIntact: true, kind: 'mapped', qemuVersion: '7.2.22' })
    expect(byName[damaged]).toMatchObject({ isIntact: false, kind: null })
    expect(failures).toMatchObject([{ name: damaged, reasons: { mapped: expect.any(String) } }])
  })
})
