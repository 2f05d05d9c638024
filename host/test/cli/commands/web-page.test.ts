// `caisson run --web`: which page it names, what the address has, and what is refused.
import { readFile, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { PassThrough } from 'node:stream'
import { expect, it, onTestFinished } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { openRunPage, pageAddress } from '../../../cli/commands/web-page.ts'
import { findLocalService } from '../../../cli/local-service.ts'
import { runCli } from '../../../cli/main.ts'
import { Host } from '../../../host.ts'
import { findAddress, serviceFolder } from '../../../service/place.ts'
import { Service } from '../../../service/service.ts'
import { runId } from '../../support/run-values.ts'

const version = '0'

async function place({ isTTY = false } = {}) {
  const home = await temporaryFolder('web-page')
  const env = { HOME: home, CAISSON_HOME: home, PATH: process.env.PATH }
  const stderr = Object.assign(new PassThrough(), { isTTY })
  const io = { stdin: new PassThrough(), stdout: new PassThrough(), stderr, env, version }
  const said = () => String(stderr.read() ?? '')
  return { home, io, host: new Host({ env }), said, directory: serviceFolder(home) }
}

it('the address has the token in a terminal alone [H.02 V.09]', async () => {
  const { io, host, said, home, directory } = await place()
  await using page = await openRunPage(io, host, home)
  await page.tell(runId)
  const token = (await readFile(path.join(directory, 'token'), 'utf8')).trim()
  const line = said()
  expect(line).toMatch(new RegExp(`^Page: http://127\\.0\\.0\\.1:\\d+/#/runs/${runId}\n$`))
  expect(line).not.toContain(token)
  const shown = Object.assign(new PassThrough(), { isTTY: true })
  const service = { url: 'http://127.0.0.1:1', directory }
  expect(await pageAddress(shown, service, runId)).toBe(`http://127.0.0.1:1/#token=${token}&run=${runId}`)
  expect(await pageAddress(shown, service)).toBe(`http://127.0.0.1:1/#token=${token}`)
  expect(await pageAddress(new PassThrough(), service)).toBe('http://127.0.0.1:1/')
})

it('without a service the command serves the page, which no other command uses; a second one takes a free port [H.02]', async () => {
  const { io, host, said, home, directory } = await place()
  const urls: string[] = []
  {
    await using first = await openRunPage(io, host, home)
    await using second = await openRunPage(io, host, home)
    expect([first.isOwn, second.isOwn]).toEqual([true, true])
    for (const page of [first, second]) {
      await page.tell(runId)
      const [, url = ''] = /(http:\S+)\/#/.exec(said()) ?? []
      urls.push(url)
      expect(await (await fetch(`${url}/`)).text()).toContain('id="app"')
    }
    expect(new Set(urls).size).toBe(2)
    expect(await findLocalService(home, version)).toBeUndefined()
    expect(await findAddress(directory)).toBeUndefined()
  }
  for (const url of urls) await expect(fetch(`${url}/`)).rejects.toThrow()
})

it('with a service the page is that of the service, which keeps its address while it runs [H.02]', async () => {
  const { io, host, said, home, directory } = await place()
  const service = await Service.start({ host, version, port: 0 })
  onTestFinished(() => service.close())
  {
    await using page = await openRunPage(io, host, home)
    expect(page.isOwn).toBe(false)
    await page.tell(runId)
    expect(said()).toBe(`Page: ${service.url}/#/runs/${runId}\n`)
  }
  expect((await fetch(`${service.url}/healthz`)).status).toBe(200)
  const file = path.join(directory, 'address')
  for (const hostile of [
    '',
    'javascript:alert(1)',
    'http://a/path',
    'http://a@b',
    'http://a#',
    'http://a\nb',
  ]) {
    await writeFile(file, hostile)
    expect([hostile, await findAddress(directory)]).toEqual([hostile, undefined])
  }
  await expect(openRunPage(io, host, home)).rejects.toThrow(/names no address/)
  await expect(openRunPage({ ...io, version: '1' }, host, home)).rejects.toThrow(/restart it/)
  await service.close()
  await expect(readFile(file)).rejects.toThrow('ENOENT')
})

it('refuses --web beside options that leave nobody to look at the page [H.01]', async () => {
  for (const flag of ['--json', '--quiet', '--detach']) {
    const { io, said, home } = await place()
    expect([flag, await runCli(['run', 'x', '--web', flag, '-w', home], io)]).toEqual([flag, 2])
    expect(said()).toContain('--web')
  }
  const { io, host, home } = await place()
  const conversation = { told: new Set<string>() }
  await expect(openRunPage({ ...io, conversation }, host, home)).rejects.toThrow(/in a conversation/)
})
