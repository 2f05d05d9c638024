// The files for containers of examples/operate/: linters accept them, and what they promise is what the service does.
import { readFile, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { DCLinter } from 'dclint'
import { DockerfileParser } from 'dockerfile-ast'
import { validate } from 'dockerfile-utils'
import { describe, expect, it } from 'vitest'
import { parse } from 'yaml'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { commandsIn } from '../../host/test/support/run-command.ts'

/** What dclint says of a file. */
interface Linted {
  readonly messages: readonly { readonly rule: string }[]
}

const folder = path.join(import.meta.dirname, '../../examples/operate')
const read = (name: string) => readFile(path.join(folder, name), 'utf8')

/** Instructions of the last stage, which is what runs. */
async function lastStage() {
  const all = DockerfileParser.parse(await read('Dockerfile')).getInstructions()
  const from = all.findLastIndex((one) => one.getKeyword() === 'FROM')
  return all.slice(from).map((one) => [one.getKeyword(), one.getArgumentsContent() ?? ''] as const)
}

const argumentsOf = (stage: Awaited<ReturnType<typeof lastStage>>, keyword: string) =>
  stage.findLast(([name]) => name === keyword)?.[1] ?? ''

describe('the Dockerfile', () => {
  it('is accepted by a linter, which finds what is wrong in another one [S4.08]', async () => {
    const text = await read('Dockerfile')
    expect(validate(text)).toEqual([])
    expect(validate(text.replace('WORKDIR /src', 'WORKDIR src')).length).toBeGreaterThan(0)
    expect(validate(text.replace('COPY --from=build', 'COPY --form=build')).length).toBeGreaterThan(0)
  })

  it('runs the service as a user without rights, from a stage without sources, with its state in volumes [S4.08]', async () => {
    const stage = await lastStage()
    const names = stage.map(([name]) => name)
    expect(argumentsOf(stage, 'USER')).toBe('caisson')
    // Nothing is written as root after the user is chosen.
    expect(names.slice(names.indexOf('USER'))).not.toContain('RUN')
    expect(stage.filter(([name]) => name === 'COPY' || name === 'ADD')).toEqual([
      ['COPY', '/opt/caisson /opt/caisson'],
    ])
    expect(await read('Dockerfile')).toContain('COPY --from=build /opt/caisson /opt/caisson')
    const environment = argumentsOf(stage, 'ENV')
    for (const place of JSON.parse(argumentsOf(stage, 'VOLUME')) as string[]) {
      expect(place).toMatch(/^\/(?:var\/lib|var\/cache|srv)\/caisson$/)
      expect(argumentsOf(stage, 'RUN') + stage.map(([, text]) => text).join('\n')).toContain(place)
    }
    expect(environment).toMatch(/CAISSON_HOME=\/var\/lib\/caisson\b/)
    expect(environment).toMatch(/CAISSON_CACHE=\/var\/cache\/caisson\b/)
    expect(argumentsOf(stage, 'HEALTHCHECK')).toContain('/readyz')
  })

  it('has no key in a layer: no argument or variable holds one, and the context leaves such files out [S4.08]', async () => {
    const text = await read('Dockerfile')
    expect(text).not.toMatch(/\b(?:ARG|ENV)\s+\S*(?:KEY|TOKEN|SECRET|PASSWORD)/i)
    const ignored = (await read('Dockerfile.dockerignore')).split('\n')
    expect(ignored[1]).toBe('*')
    expect(ignored).toEqual(expect.arrayContaining(['**/.env', '**/*.pem', '**/*.key', '**/node_modules']))
    expect(ignored).not.toContain('!.git')
  })

  it('starts a command line that caisson accepts, with the packages that running needs [S4.08]', async () => {
    const stage = await lastStage()
    expect(JSON.parse(argumentsOf(stage, 'ENTRYPOINT'))).toEqual(['caisson'])
    const argv = JSON.parse(argumentsOf(stage, 'CMD')) as string[]
    const caisson = commandsIn({ CAISSON_HOME: await temporaryFolder('home') })
    // An option that is not there is refused before a file is read.
    const tried = await caisson(...argv, '--env-file', '/missing.env')
    expect([tried.code, tried.stderr]).toEqual([2, expect.stringContaining('missing.env" cannot be read')])
    const setup = await readFile(path.join(folder, '../../scripts/setup.sh'), 'utf8')
    const [, needed = ''] = /^needed_packages=\(([^)]*)\)/m.exec(setup) ?? []
    const packages = needed
      .trim()
      .split(/\s+/)
      .map((pair) => pair.split(':')[1] ?? '')
    const [, installed = ''] =
      /--no-install-recommends([^&]*)/.exec(stage.map(([, text]) => text).join('\n')) ?? []
    expect(installed.split(/[\s\\]+/)).toEqual(expect.arrayContaining(packages))
  })
})

describe('the compose files', () => {
  const linter = new DCLinter({
    ...{ debug: false, quiet: true, exclude: [] },
    rules: { 'require-quotes-in-ports': [1, { quoteType: 'single' }] },
  })
  const problemsOf = (file: string) =>
    (linter.lintFiles([file], false) as readonly Linted[]).flatMap(({ messages }) =>
      messages.map(({ rule }) => rule),
    )

  it('fit the Compose Specification, and a linter finds what is wrong in another one [S4.08]', async () => {
    for (const name of ['compose.yml', 'compose.kvm.yml', 'compose.bubblewrap.yml'])
      expect([name, problemsOf(path.join(folder, name))]).toEqual([name, []])
    const other = path.join(await temporaryFolder('compose'), 'compose.yml')
    await writeFile(other, (await read('compose.yml')).replace('restart:', 'restrat:'))
    expect(problemsOf(other)).toContain('invalid-schema')
  })

  it('start a command line that caisson accepts, keep it from other machines without TLS, and keep its state [S4.08]', async () => {
    const { services, volumes } = parse(await read('compose.yml')) as {
      services: Record<
        string,
        { command: string[]; volumes: string[]; network_mode?: string; ports?: string[] }
      >
      volumes: Record<string, unknown>
    }
    const { api: service, proxy, image } = services
    const argv = (service?.command ?? []).map((word) => word.replace(/^\$\{CAISSON_NAME:\?\}$/, 'a.example'))
    const caisson = commandsIn({ CAISSON_HOME: await temporaryFolder('home') })
    const tried = await caisson(...argv, '--env-file', '/missing.env')
    expect([tried.code, tried.stderr]).toEqual([2, expect.stringContaining('missing.env" cannot be read')])
    expect(argv).not.toContain('--address')
    expect(proxy?.network_mode).toBe('service:api')
    expect(service?.ports).toEqual(['0.0.0.0:443:443'])
    expect(image?.command).toEqual(['image', 'build'])
    const kept = (service?.volumes ?? []).map((volume) => volume.split(':')[0] ?? '')
    expect(Object.keys(volumes)).toEqual(expect.arrayContaining(kept))
  })
})
