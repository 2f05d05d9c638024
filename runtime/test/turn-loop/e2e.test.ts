import { execFile } from 'node:child_process'
import { readFileSync } from 'node:fs'
import path from 'node:path'
import { promisify } from 'node:util'
import { describe, expect, it } from 'vitest'

const root = path.resolve(import.meta.dirname, '../../..')
const { scripts } = JSON.parse(readFileSync(path.join(root, 'package.json'), 'utf8')) as {
  scripts: Record<string, string>
}
/** Nothing of the machine's configuration: no key, no address of a server. */
const bare = { PATH: `${path.dirname(process.execPath)}:/usr/bin:/bin` }
/** Ends a program that connects to anything but this machine. */
const guard = `
import net from 'node:net'
const { connect } = net.Socket.prototype
net.Socket.prototype.connect = function (...args) {
  const [given] = Array.isArray(args[0]) ? args[0] : args
  const to = typeof given === 'object' ? given : { port: given, host: args[1] }
  if (!to.path && !['127.0.0.1', '::1', 'localhost', undefined].includes(to.host)) {
    process.stderr.write('connects to ' + to.host)
    process.exit(9)
  }
  return connect.apply(this, args)
}`
const env = { ...bare, NODE_OPTIONS: `--import=data:text/javascript,${encodeURIComponent(guard)}` }

async function run(name: string): Promise<{ code: number; stdout: string; stderr: string }> {
  const command = scripts[name] ?? ''
  try {
    const said = await promisify(execFile)('/bin/sh', ['-c', command], { cwd: root, env, timeout: 60_000 })
    return { code: 0, ...said }
  } catch (error) {
    const { code, stdout, stderr } = error as { code: number; stdout: string; stderr: string }
    return { code, stdout, stderr }
  }
}

describe('the scripts of the package', () => {
  it('are watched for connections by a guard that ends them', async () => {
    const ask = `fetch('http://192.0.2.1/').catch(() => undefined)`
    await expect(promisify(execFile)(process.execPath, ['-e', ask], { env })).rejects.toMatchObject({
      code: 9,
      stderr: 'connects to 192.0.2.1',
    })
  })

  it.each(['build', 'check', 'test', 'test:watch', 'test:e2e', 'test:e2e:turn-loop'])(
    'hold %s [S2.30]',
    (name) => {
      expect(scripts[name]).toMatch(/\S/)
    },
  )

  it.each(['test:e2e:dry-run', 'test:e2e:turn-loop:dry-run', 'test:e2e:hardening'])(
    'run %s to its end without a network [S2.30]',
    async (name) => {
      const { code, stdout, stderr } = await run(name)
      expect(stderr).toBe('')
      expect(code).toBe(0)
      expect(stdout.match(/^ok: /gm)?.length).toBeGreaterThanOrEqual(2)
    },
    90_000,
  )

  it('say what to set where there is no model to ask [S2.30]', async () => {
    const { code, stderr } = await run('test:e2e')
    expect(code).toBe(1)
    expect(stderr).toContain('CAISSON_E2E_MODEL')
  })
})
