// The compose file of examples/fleet/: a linter accepts it, and it keeps what docs/fleet.md promises of it.
import { readFile, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { DCLinter } from 'dclint'
import { describe, expect, it } from 'vitest'
import { parse } from 'yaml'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { leaveMs as stopMs } from '../../host/cli/commands/serve.ts'
import { readS3Settings } from '../../host/fleet/s3-settings.ts'
import { commandsIn } from '../../host/test/support/run-command.ts'
import { caissonCommandsIn, parseCommand, watchNames } from './examples-support.ts'

const folder = path.join(import.meta.dirname, '../../examples/fleet')
const read = (name: string) => readFile(path.join(folder, name), 'utf8')

interface Linted {
  readonly messages: readonly { readonly rule: string }[]
}

interface Service {
  readonly image?: string
  readonly entrypoint?: readonly string[]
  readonly volumes?: readonly string[]
  readonly secrets?: readonly string[]
  readonly command?: readonly string[]
  readonly devices?: readonly string[]
  readonly environment?: Readonly<Record<string, string>>
  readonly privileged?: boolean
  readonly read_only?: boolean
  readonly cap_drop?: readonly string[]
  readonly security_opt?: readonly string[]
  readonly stop_grace_period?: string
}

/** A command line of prepare names a file that is not there. */
async function refusesFile(argv: readonly string[]): Promise<void> {
  const caisson = commandsIn({ CAISSON_HOME: await temporaryFolder('home') })
  const tried = await caisson(...argv)
  expect([tried.code, tried.stderr]).toEqual([2, expect.stringMatching(/--fleet-file .* cannot be read/)])
}

describe('the compose file', () => {
  const linter = new DCLinter({
    ...{ debug: false, quiet: true, exclude: [] },
    // In the order in which things start, which is that of the page.
    rules: { 'service-keys-order': 0, 'services-alphabetical-order': 0, 'top-level-properties-order': 0 },
  })
  const problemsOf = (file: string) =>
    (linter.lintFiles([file], false) as readonly Linted[]).flatMap(({ messages }) =>
      messages.map(({ rule }) => rule),
    )
  const composed = async () =>
    parse(await read('compose.yml'), { merge: true }) as {
      services: Record<string, Service>
      secrets: Record<string, { file: string }>
      volumes: Record<string, unknown>
    }

  it('fits the Compose Specification, and a linter finds what is wrong in another one', async () => {
    expect(problemsOf(path.join(folder, 'compose.yml'))).toEqual([])
    const other = path.join(await temporaryFolder('compose'), 'compose.yml')
    await writeFile(other, (await read('compose.yml')).replace('restart:', 'restrat:'))
    expect(problemsOf(other)).toContain('invalid-schema')
  })

  it('gives each of three hosts a state folder of its own and /dev/kvm, and none the secrets of the owner', async () => {
    const { services, volumes, secrets } = await composed()
    const hosts = Object.entries(services).filter(([name]) => name.startsWith('host-'))
    expect(hosts).toHaveLength(3)
    const states = hosts.map(([, { volumes: its = [] }]) =>
      its.find((one) => one.endsWith(':/var/lib/caisson')),
    )
    expect(new Set(states).size).toBe(3)
    for (const [name, host] of hosts) {
      expect(host.devices, name).toEqual(['/dev/kvm'])
      expect(host.secrets, name).toEqual(['host_address', 'store_user', 'store_password'])
      expect(host).toMatchObject({
        read_only: true,
        cap_drop: ['ALL'],
        security_opt: ['no-new-privileges:true'],
      })
      expect(Number.parseInt(host.stop_grace_period ?? '', 10) * 1000, name).toBeGreaterThan(stopMs + 30_000)
    }
    for (const { privileged, secrets: its = [], volumes: kept = [], environment = {} } of Object.values(
      services,
    )) {
      expect(privileged).toBeUndefined()
      expect(Object.keys(secrets)).toEqual(expect.arrayContaining([...its]))
      expect(Object.keys(volumes)).toEqual(expect.arrayContaining(kept.map((one) => one.split(':')[0])))
      for (const [name, value] of Object.entries(environment))
        if (/PASSWORD|SECRET|KEY/.test(name)) expect(value, name).toMatch(/^\/run\/secrets\//)
    }
    await refusesFile(services.prepare?.command ?? [])
  })

  it('has command lines that caisson accepts, and mounts the secrets that they read', async () => {
    const { services } = await composed()
    const own = Object.values(services).filter(({ image }) => image === 'caisson:local')
    expect(own).toHaveLength(5)
    const names: string[] = []
    for (const { entrypoint, command = [], secrets = [] } of own) {
      const lines = entrypoint === undefined ? [command] : caissonCommandsIn(command.join(' '))
      for (const argv of lines) names.push(await parseCommand(argv))
      for (const [, name = ''] of command.join(' ').matchAll(/\/run\/secrets\/(\w+)/g))
        expect(secrets, name).toContain(name)
    }
    const serve = Array.from({ length: 3 }, () => 'caisson serve')
    expect(names).toEqual(['caisson fleet prepare', 'caisson image build', ...serve])
  })

  it('has variables that a host or the shell of its command reads', async () => {
    const { services } = await composed()
    for (const [name, { command = [], environment = {} }] of Object.entries(services)) {
      if (!name.startsWith('host-')) continue
      const asked = new Set([...command.join(' ').matchAll(/\$\$(\w+)/g)].map(([, one = '']) => one))
      const keys = { AWS_ACCESS_KEY_ID: 'id', AWS_SECRET_ACCESS_KEY: 'secret' }
      const env = watchNames({ ...keys, ...environment }, asked)
      await readS3Settings('s3://caisson/runs', env, '')
      expect(Object.keys(environment).filter((one) => !asked.has(one))).toEqual([])
    }
  })
})
