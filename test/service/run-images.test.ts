// Images of runs over HTTP: those that a task names, and those that the model looked at. Real requests, no VM.
import { createHash } from 'node:crypto'
import { mkdir, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { describe, expect, it, onTestFinished, vi } from 'vitest'
import { gif, jpeg, png, webp } from '#specs/testing/images.ts'
import { Host } from '../../host/index.ts'
import { changedRunId, placeOfRuns } from '../../host/test/support/changed-run.ts'
import { recordImages } from '../../host/test/support/recorded-images.ts'
import { changedBy, codeOf, holderOf, runThatUsed, serveKeys } from './keys-support.ts'
import { heldRuns } from './queue-support.ts'
import { serveHost } from './support.ts'

const digestOf = (bytes: Uint8Array) => createHash('sha256').update(bytes).digest('hex')
const addressOf = (run: string, bytes: Uint8Array) => `/v1/runs/${run}/images/${digestOf(bytes)}`

describe('an image that the model of a run looked at', () => {
  it('is given by its digest: its type by its bytes, for no cache and no other use [G.09 H.02]', async () => {
    const { host, directory, client, service, token } = await serveKeys({ 'a.txt': 'one\n' })
    await changedBy({ metadata: {} }, host, directory)
    const images = [
      ['image/png', png(640, 480)],
      ['image/jpeg', jpeg(32, 16)],
      ['image/gif', gif(3, 4)],
      ['image/webp', webp(5, 6)],
    ] as const
    await recordImages(host.runs.paths(changedRunId).exchanges, changedRunId, images)
    for (const [type, bytes] of images) {
      const answer = await fetch(`${service.url}${addressOf(changedRunId, bytes)}`, {
        headers: { authorization: `Bearer ${token}` },
      })
      expect([answer.status, Object.fromEntries(answer.headers)]).toMatchObject([
        200,
        {
          'content-type': type,
          'content-length': String(bytes.length),
          'cache-control': 'no-store',
          'x-content-type-options': 'nosniff',
          'content-security-policy': "default-src 'none'; sandbox",
          'cross-origin-resource-policy': 'same-origin',
        },
      ])
      expect(bytes.equals(await answer.bytes())).toBe(true)
      const blob = await client.call('getImage', { params: { run: changedRunId, image: digestOf(bytes) } })
      expect([blob.type, bytes.equals(await blob.bytes())]).toEqual([type, true])
      expect(await host.runs.image(changedRunId, digestOf(bytes))).toMatchObject({ type })
    }
  })

  it('is not there for another key, for a key that may not read, or by another digest [G.09 H.02]', async () => {
    const { host, directory, ...served } = await serveKeys({ 'a.txt': 'one\n' })
    const mine = await holderOf(host, served, 'mine')
    const other = await holderOf(host, served, 'other')
    const starter = await holderOf(host, served, 'starter', { scopes: ['run'] })
    await changedBy(mine, host, directory)
    const another = `run-${'1'.repeat(20)}`
    await runThatUsed(host, another, mine.metadata)
    const [picture, unknown] = [png(640, 480), png(1, 1)]
    await recordImages(host.runs.paths(changedRunId).exchanges, changedRunId, [['image/png', picture]])
    const address = addressOf(changedRunId, picture)
    expect((await mine.send('GET', address)).status).toBe(200)
    const answers = [
      await other.send('GET', address),
      await starter.send('GET', address),
      await served.send('GET', address, { headers: { authorization: undefined } }),
      await mine.send('GET', addressOf(changedRunId, unknown)),
      // The run has no recording.
      await mine.send('GET', addressOf(another, picture)),
      await mine.send('GET', `/v1/runs/${changedRunId}/images/${digestOf(picture).toUpperCase()}`),
      await mine.send('GET', `/v1/runs/${changedRunId}/images/..%2Fexchanges.jsonl`),
    ]
    expect(answers.map((answer) => [answer.status, codeOf(answer)])).toEqual([
      [404, 'run_not_found'],
      [403, 'forbidden'],
      [401, 'unauthorized'],
      [404, 'file_not_found'],
      [404, 'file_not_found'],
      [400, 'invalid_request'],
      [400, 'invalid_request'],
    ])
  })
})

it('images of a task are files of its workspace: the run has them, or is refused [G.09 H.02]', async () => {
  const { directory, env } = await placeOfRuns({})
  const held = await heldRuns()
  await held.release()
  const hook = { point: 'before-run' as const, command: [...held.command] }
  const host = new Host({ env: { ...env, PATH: process.env.PATH }, config: { hooks: [hook] } })
  onTestFinished(() => host.close())
  await mkdir(path.join(directory, 'shots'))
  await writeFile(path.join(directory, 'shots/a.png'), png(640, 480))
  await writeFile(path.join(path.dirname(directory), 'outside.png'), png(1, 1))
  const { client } = await serveHost(host, { workspaces: [directory] })
  const start = (images: string[]) =>
    client.call('createRun', { body: { prompt: 'x', workspace: directory, images } })
  for (const [images, code] of [
    [['../outside.png'], 'invalid_options'],
    [['none.png'], 'invalid_options'],
    [Array(9).fill('shots/a.png'), 'invalid_request'],
    [['a\0.png'], 'invalid_request'],
  ] as const)
    await expect(start([...images])).rejects.toMatchObject({ status: 400, code })
  expect(await host.runs.ids()).toEqual([])
  const { id } = await start(['shots/a.png'])
  await vi.waitUntil(async () => (await host.runs.live()).size === 0, { timeout: 30_000 })
  const image = { sha256: digestOf(png(640, 480)), type: 'image/png', width: 640, height: 480 }
  expect((await host.runs.read(id))[0]?.event).toMatchObject({ images: [{ path: 'shots/a.png', image }] })
})
