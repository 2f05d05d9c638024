/** The manifests of examples/fleet/kubernetes/, as tests read them. */
import { readdir, readFile } from 'node:fs/promises'
import path from 'node:path'
import { expect } from 'vitest'
import { parseAllDocuments } from 'yaml'
import type { Manifest } from './kubernetes-schemas.ts'

export const root = path.join(import.meta.dirname, '../..')
const folder = path.join(root, 'examples/fleet/kubernetes')
export const read = (name: string) => readFile(path.join(folder, name), 'utf8')

export interface Probe {
  readonly httpGet: {
    readonly path: string
    readonly httpHeaders: readonly { readonly name: string; readonly value: string }[]
  }
}

export interface Container {
  readonly args: readonly string[]
  readonly securityContext: unknown
  readonly volumeMounts: readonly { readonly name: string; readonly mountPath: string }[]
  readonly env?: readonly { readonly name: string; readonly value?: string; readonly valueFrom?: unknown }[]
  readonly resources: { readonly limits: Readonly<Record<string, string>> }
  readonly startupProbe: Probe
  readonly livenessProbe: Probe
  readonly readinessProbe: Probe
  readonly lifecycle: { readonly preStop: { readonly exec: { readonly command: readonly string[] } } }
}

export interface Pod {
  readonly securityContext: Readonly<Record<string, unknown>>
  readonly automountServiceAccountToken: boolean
  readonly terminationGracePeriodSeconds: number
  readonly initContainers?: readonly Container[]
  readonly containers: readonly Container[]
  readonly volumes: readonly { readonly name: string; readonly secret?: { readonly secretName: string } }[]
}

interface Resource extends Manifest {
  readonly metadata: { readonly name: string; readonly namespace?: string }
  readonly spec?: {
    readonly selector?: Readonly<Record<string, unknown>> & {
      readonly matchLabels?: Readonly<Record<string, string>>
    }
    readonly podSelector?: { readonly matchLabels: Readonly<Record<string, string>> }
    readonly volumeClaimTemplates?: readonly { readonly metadata: { readonly name: string } }[]
    readonly template?: {
      readonly metadata?: { readonly labels: Readonly<Record<string, string>> }
      readonly spec: Pod
    }
  }
}

export async function resources(name: string): Promise<Resource[]> {
  return parseAllDocuments(await read(name), { merge: true }).map((document) => {
    expect(document.errors).toEqual([])
    return document.toJS() as Resource
  })
}

export async function everything(): Promise<Resource[]> {
  return (await Promise.all((await readdir(folder)).map(resources))).flat()
}

export async function hostPod(): Promise<{
  readonly pod: Pod
  readonly container: Container
  readonly set: Resource
}> {
  const set = (await resources('hosts.yml')).find(({ kind }) => kind === 'StatefulSet')
  const pod = set?.spec?.template?.spec
  const container = pod?.containers[0]
  if (set === undefined || pod === undefined || container === undefined) throw new Error('there is no host')
  return { pod, container, set }
}

export const containersOf = (pod: Pod) => [...(pod.initContainers ?? []), ...pod.containers]
export const variablesOf = ({ env = [] }: Container) =>
  Object.fromEntries(env.map(({ name, value }) => [name, value ?? 'from-a-secret']))
