// Templates for tests: small ones made of files alone, and a cache folder of the test's own that knows this machine.

import { once } from 'node:events'
import { cpSync, existsSync, mkdtempSync, rmSync } from 'node:fs'
import { mkdir, truncate, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { type Folders, prepareFolders, resolveFolders } from '../../state/folders.ts'
import { sealTemplate, type Template, type TemplateKind } from '../../vm/template/template.ts'
import type { Vm } from '../../vm/vm.ts'

const MIB = 1024 * 1024

/** Names of the files of a template, in its folder. */
export const templateFiles = ['memory', 'state', 'scratch.raw', 'overlay.qcow2', 'workspace.blank'] as const

/** What no VM can begin from, but every check of files can look at. */
export async function writeTemplate(
  cache: string,
  name: string,
  kind: TemplateKind = 'mapped',
): Promise<Template> {
  const directory = join(cache, 'templates', name)
  await mkdir(directory, { recursive: true, mode: 0o700 })
  for (const file of templateFiles) await writeFile(join(directory, file), `the ${file} of ${name}`)
  await truncate(join(directory, 'memory'), MIB)
  return await sealTemplate(directory, { kind, qemuVersion: '7.2.22', tookMs: 1, memoryBytes: MIB })
}

/** State and cache folders of one test, the latter with what was found out about this machine; disposing removes both. */
export async function makeOwnFolders(): Promise<{ readonly folders: Folders } & Disposable> {
  const root = mkdtempSync(join(tmpdir(), 'caisson-templates-'))
  const folders = resolveFolders({
    ...process.env,
    CAISSON_HOME: join(root, 'home'),
    CAISSON_CACHE: join(root, 'cache'),
  })
  await prepareFolders(folders)
  copyMachines(folders.cache)
  return { folders, [Symbol.dispose]: () => rmSync(root, { recursive: true, force: true }) }
}

/** Without them each new cache costs a trial of the accelerators. */
export function copyMachines(cache: string): void {
  const known = join(resolveFolders(process.env).cache, 'machines')
  if (existsSync(known)) cpSync(known, join(cache, 'machines'), { recursive: true })
}

/** The least that brings an agent to where copies may begin: it has started, and waits for a host. */
export async function awaitHello(vm: Vm): Promise<void> {
  vm.rpc.resume()
  await once(vm.rpc, 'data')
  await sleep(300)
}
