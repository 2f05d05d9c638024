// A pod of examples/fleet/kubernetes/ as far as this machine has one: arguments, variables, mounts and user of its container.
import { spawn } from 'node:child_process'
import { mkdir, readFile } from 'node:fs/promises'
import { request } from 'node:https'
import path from 'node:path'
import { createInterface } from 'node:readline'
import { expect, it, onTestFinished } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { Authority } from '../support/certificates.ts'
import { type Container, hostPod, type Probe, root, variablesOf } from './kubernetes-support.ts'

it('a host starts a service that answers the probes of its manifest, from a root that is read-only', {
  timeout: 60_000,
}, async () => {
  const { container } = await hostPod()
  const url = await startContained(container)
  const ask = (probe: Probe, isNamed = true) =>
    answerOf(new URL(probe.httpGet.path, url), isNamed ? probe.httpGet.httpHeaders : [])
  expect(await ask(container.startupProbe)).toBe(200)
  expect(await ask(container.livenessProbe)).toBe(200)
  // 503 where this machine has no image: the service was asked, and a pod would get no clients.
  expect([200, 503]).toContain(await ask(container.readinessProbe))
  expect(await ask(container.livenessProbe, false)).toBe(403)
})

/** The container's service without its fleet: its arguments, variables and mounts. @returns its address */
async function startContained({ args, volumeMounts, ...rest }: Container): Promise<string> {
  const kept = await temporaryFolder('pod')
  const mounts = await Promise.all(
    volumeMounts.map(async ({ name, mountPath }) => {
      const place = path.join(kept, name)
      await mkdir(place, { recursive: true })
      return ['--bind', place, mountPath]
    }),
  )
  const { cert, key } = await (await Authority.create(kept, 'authority')).sign({ name: 'caisson' })
  const own = args.filter(
    (one, at) => !/^--(fleet|tls)/.test(one) && !/^--(fleet|tls)/.test(args[at - 1] ?? ''),
  )
  const dockerfile = await readFile(path.join(root, 'examples/operate/Dockerfile'), 'utf8')
  expect(dockerfile).toContain('XDG_CONFIG_HOME=/etc')
  const env = {
    PATH: process.env.PATH,
    XDG_CONFIG_HOME: '/etc',
    ...variablesOf({ args, volumeMounts, ...rest }),
  }
  const program = [process.execPath, '--conditions=caisson-source', path.join(root, 'host/cli/bin.ts')]
  const child = spawn(
    'bwrap',
    [
      ...['--die-with-parent', '--unshare-user', '--uid', '999', '--gid', '999', '--ro-bind', '/', '/'],
      ...['--dev-bind', '/dev', '/dev', '--tmpfs', '/run', '--tmpfs', '/srv', '--tmpfs', '/var/lib'],
      ...mounts.flat(),
      // Where the checkout or these files are below a folder that the mounts hide.
      ...[root, path.dirname(process.execPath), kept].flatMap((one) => ['--ro-bind', one, one]),
      ...['--chdir', '/', ...program, ...own, '--tls-cert', cert, '--tls-key', key, '--port', '0'],
    ],
    { env, stdio: ['ignore', 'ignore', 'pipe'] },
  )
  const closed = new Promise((resolve) => child.once('close', resolve))
  onTestFinished(async () => {
    child.kill('SIGTERM')
    await closed
  })
  const said: string[] = []
  for await (const line of createInterface({ input: child.stderr })) {
    said.push(line)
    const [, url] = /listens on (\S+)/.exec(line) ?? []
    if (url !== undefined) return url
  }
  throw new Error(`the service did not start: ${said.join('\n')}`)
}

/** The status of an answer, by a client that does not check certificates, as the kubelet. */
async function answerOf(
  url: URL,
  headers: readonly { readonly name: string; readonly value: string }[],
): Promise<number | undefined> {
  return await new Promise((resolve, reject) => {
    const sent = request({
      ...{ hostname: '127.0.0.1', port: url.port, path: url.pathname, rejectUnauthorized: false },
      headers: Object.fromEntries(headers.map(({ name, value }) => [name, value])),
    })
    sent.once('error', reject)
    sent.once('response', (response) => {
      response.resume()
      resolve(response.statusCode)
    })
    sent.end()
  })
}
