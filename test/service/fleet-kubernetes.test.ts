// The manifests of examples/fleet/kubernetes/: the schemas of Kubernetes accept them, and the service keeps what they ask of it.
import { readFile } from 'node:fs/promises'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { parseAllDocuments } from 'yaml'
import { routes } from '#specs/service/routes.ts'
import { leaveMs as stopMs } from '../../host/cli/commands/serve.ts'
import { leaveMs as checkpointMs } from '../../host/fleet/fence.ts'
import { readS3Settings } from '../../host/fleet/s3-settings.ts'
import { caissonCommandsIn, parseCommand, watchNames } from './examples-support.ts'
import { type Manifest, problemsOf } from './kubernetes-schemas.ts'
import {
  containersOf,
  everything,
  hostPod,
  read,
  resources,
  root,
  variablesOf,
} from './kubernetes-support.ts'

describe('the schemas of Kubernetes', () => {
  it('accept every manifest, and all of them are in the namespace that the first one makes', async () => {
    const all = await everything()
    expect(all.map(({ kind }) => kind)).toEqual(
      expect.arrayContaining(['StatefulSet', 'Job', 'NetworkPolicy']),
    )
    for (const one of all) {
      expect([one.kind, await problemsOf(one)]).toEqual([one.kind, []])
      expect(one.metadata.namespace ?? one.metadata.name).toBe('caisson')
    }
    expect((await resources('namespace.yml')).map(({ kind }) => kind)).toEqual(['Namespace'])
  })

  it.each([
    ['replicas: 3', 'replica: 3', '/spec/replica is no field'],
    ['periodSeconds: 5', 'periodSecond: 5', '/startupProbe/periodSecond is no field'],
    [
      'readOnlyRootFilesystem',
      'readOnlyRootFileSystem',
      '/securityContext/readOnlyRootFileSystem is no field',
    ],
    [
      'terminationGracePeriodSeconds: 180',
      'terminationGracePeriodSeconds: "180"',
      '/terminationGracePeriodSeconds must be integer',
    ],
    [
      'podManagementPolicy: OrderedReady',
      'podManagementPolicy: Ordered',
      '/podManagementPolicy must be equal to one of',
    ],
    ['memory: 8Gi', 'memory: 8 GB', '/memory must match'],
  ])('refuse a manifest in which %j is %j', async (from, to, said) => {
    const changed = (await read('hosts.yml')).replace(from, to)
    const all = parseAllDocuments(changed, { merge: true }).map((document) => document.toJS() as Manifest)
    expect((await Promise.all(all.map(problemsOf))).flat().join('\n')).toContain(said)
  })
})

describe('the manifests for Kubernetes', () => {
  it('lock every container down: no root, no privileges, a root that is read-only, KVM as a resource', async () => {
    const pods = (await everything()).flatMap(({ spec }) =>
      spec?.template === undefined ? [] : [{ pod: spec.template.spec, spec }],
    )
    expect(pods).toHaveLength(2)
    for (const { pod, spec } of pods) {
      expect(pod.securityContext).toMatchObject({
        runAsNonRoot: true,
        seccompProfile: { type: 'RuntimeDefault' },
      })
      expect(pod.automountServiceAccountToken).toBe(false)
      const claims = spec.volumeClaimTemplates?.map(({ metadata }) => metadata.name) ?? []
      for (const { securityContext, volumeMounts, env = [] } of containersOf(pod)) {
        expect(securityContext).toEqual({
          ...{ allowPrivilegeEscalation: false, privileged: false, readOnlyRootFilesystem: true },
          capabilities: { drop: ['ALL'] },
        })
        const volumes = [...pod.volumes.map(({ name }) => name), ...claims]
        expect(volumes).toEqual(expect.arrayContaining(volumeMounts.map(({ name }) => name)))
        expect(volumeMounts.map(({ mountPath }) => mountPath)).toContain('/tmp')
        // Keys come by reference.
        for (const { name, value } of env)
          if (/KEY|SECRET|PASSWORD/.test(name)) expect(value, name).toBeUndefined()
      }
    }
    expect(await read('hosts.yml')).not.toMatch(/hostPath|hostNetwork|kind: Secret\b/)
    const { container, pod } = await hostPod()
    expect(container.resources.limits).toHaveProperty(['devices.kubevirt.io/kvm'], '1')
    // The user of the image, who owns its folders.
    const dockerfile = await readFile(path.join(root, 'examples/operate/Dockerfile'), 'utf8')
    expect(dockerfile).toContain(`useradd --system --uid ${pod.securityContext.runAsUser} `)
  })

  it('select the pods of the hosts', async () => {
    const all = await resources('hosts.yml')
    const labels = (await hostPod()).set.spec?.template?.metadata?.labels
    const kinds = ['PodDisruptionBudget', 'NetworkPolicy', 'StatefulSet', 'Service', 'Service']
    const selecting = all.filter(({ kind }) => kinds.includes(kind))
    expect(selecting).toHaveLength(kinds.length)
    for (const { spec } of selecting)
      expect(spec?.podSelector?.matchLabels ?? spec?.selector?.matchLabels ?? spec?.selector).toEqual(labels)
  })

  it('give the address of the owner to the job that prepares the tables alone', async () => {
    expect(await read('hosts.yml')).not.toContain('caisson-fleet-owner')
    expect(await read('prepare.yml')).toContain('caisson-fleet-owner')
  })

  it('have command lines that caisson accepts, which name files of their mounts', async () => {
    const { pod, container } = await hostPod()
    const job = (await resources('prepare.yml'))[0]?.spec?.template?.spec
    const all = [...containersOf(pod), ...(job === undefined ? [] : containersOf(job))]
    const parsed = await Promise.all(all.map(({ args }) => parseCommand(args)))
    expect(parsed).toEqual(['caisson image build', 'caisson serve', 'caisson fleet prepare'])
    for (const { args, volumeMounts } of all)
      for (const file of args.filter((one) => one.startsWith('/')))
        expect(
          volumeMounts.some(({ mountPath }) => `${file}/`.startsWith(`${mountPath}/`)),
          file,
        ).toBe(true)
    const [drain = []] = caissonCommandsIn(container.lifecycle.preStop.exec.command.join(' '))
    expect(await parseCommand(drain)).toBe('caisson fleet drain')
    await expect(parseCommand([...drain, '--wait'])).rejects.toThrow(/unknown option/)
  })

  it('have variables that a host reads, and no more', async () => {
    const { container } = await hostPod()
    const given = variablesOf(container)
    const asked = new Set<string>()
    const env = watchNames(given, asked)
    const { shown } = await readS3Settings(
      container.args[container.args.indexOf('--fleet-files') + 1] ?? '',
      env,
      '',
    )
    expect(shown).toBe('s3://caisson/runs at store.example.com')
    // fleet-pod.slow.test.ts shows where these lead.
    const others = Object.keys(given).filter((name) => !asked.has(name))
    expect(others).toEqual(['CAISSON_HOME', 'CAISSON_CACHE'])
  })

  it('leave a host the time to give its runs to others before SIGKILL', async () => {
    const { pod, container } = await hostPod()
    const [, sleep = ''] = /sleep (\d+)/.exec(container.lifecycle.preStop.exec.command.join(' ')) ?? []
    // A host hears of a drain within 5 s, and a run leaves it at the latest after checkpointMs.
    expect(Number(sleep) * 1000).toBeGreaterThan(checkpointMs + 5_000)
    expect(pod.terminationGracePeriodSeconds * 1000).toBeGreaterThan(Number(sleep) * 1000 + stopMs + 30_000)
  })

  it('ask the routes that the service has, under a name that it accepts', async () => {
    const { container } = await hostPod()
    const { startupProbe, livenessProbe, readinessProbe, args } = container
    expect(livenessProbe.httpGet.path).toBe(routes.health.path)
    expect(readinessProbe.httpGet.path).toBe(routes.ready.path)
    const [name] = args.slice(args.indexOf('--allow-host-name') + 1)
    for (const { httpGet } of [startupProbe, livenessProbe, readinessProbe])
      expect(httpGet.httpHeaders).toEqual([{ name: 'Host', value: name }])
  })
})
