/** A service in this process, with a client of it, and a run that does nothing. */
import { mkdir, readFile } from 'node:fs/promises'
import path from 'node:path'
import { ServiceClient } from '../../client/index.ts'
import { Host, type HostOptions } from '../../host/host.ts'
import { offlineModel } from '../../host/providers/providers.ts'
import { Service } from '../../host/service/service.ts'
import type { Bench } from './bench.ts'

export interface Served extends AsyncDisposable {
  readonly host: Host
  readonly service: Service
  readonly client: ServiceClient
  readonly token: string
  /** Folder that runs may work on. */
  readonly workspace: string
}

export async function serve(bench: Bench, options: Pick<HostOptions, 'pool'> = {}): Promise<Served> {
  const workspace = path.join(bench.work, 'served')
  await mkdir(workspace, { recursive: true })
  const host = new Host({ ...options, env: { ...process.env, CAISSON_HOME: bench.folders.home } })
  const service = await Service.start({ host, version: 'bench', port: 0, workspaces: [workspace] })
  const token = (await readFile(service.tokenFile, 'utf8')).trim()
  const client = new ServiceClient({ baseUrl: service.url, token })
  const close = async () => {
    await service.close()
    await host.close()
  }
  return { host, service, client, token, workspace, [Symbol.asyncDispose]: close }
}

/** Starts a run of the offline model. @returns its id */
export async function startRun({ client, workspace }: Served, prompt: string): Promise<string> {
  const { id } = await client.call('createRun', { body: { prompt, workspace, model: offlineModel } })
  return id
}

/** Ends a run at once, and waits until it has ended. */
export async function endRun({ client }: Served, run: string): Promise<void> {
  await client.call('cancelRun', { params: { run }, body: { now: true } })
  for await (const _ of client.events(run));
}
