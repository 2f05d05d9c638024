/**
 * Hibernation of a warm VM that has touched 100 MB: time until it is saved, and time until its agent answers again.
 */

import { rm } from 'node:fs/promises'
import { join } from 'node:path'
import { buffer } from 'node:stream/consumers'
import { workspaceOpen } from '#specs/protocol/methods.ts'
import { GuestAccess } from '../../host/control/guest-access.ts'
import { Shell } from '../../host/control/shell.ts'
import { hibernateVm, wakeVm } from '../../host/vm/hibernation/hibernate.ts'
import { AGENT_DEADLINE_MS, type Bench, type Figures, openLink, vmOptions, waitForAgent } from './bench.ts'
import { figureOf, repeats, reportProgress } from './figures.ts'
import { readCpuMs } from './processes.ts'
import { obtainTemplate, resumeFrom } from './starts.ts'

const ROUNDS = repeats(5)
const TOUCH = 'import os\nassert len(os.urandom(100_000_000)) == 100_000_000'

export async function measureSleep(bench: Bench): Promise<Figures> {
  const samples: Sample[] = []
  for (let index = 0; index < ROUNDS; index += 1) {
    reportProgress(`hibernation ${index + 1} of ${ROUNDS}`)
    samples.push(await sleepAndWake(bench))
  }
  return {
    hibernateMs: figureOf(samples.map(({ hibernateMs }) => hibernateMs)),
    wakeMs: figureOf(samples.map(({ wakeMs }) => wakeMs)),
    wakeCpuMs: figureOf(samples.map(({ wakeCpuMs }) => wakeCpuMs)),
  }
}

interface Sample {
  readonly hibernateMs: number
  readonly wakeMs: number
  /** Of QEMU until its agent has answered. */
  readonly wakeCpuMs: number
}

async function sleepAndWake(bench: Bench): Promise<Sample> {
  const template = await obtainTemplate(bench)
  const directory = join(bench.work, 'saved')
  await using vm = await resumeFrom(bench, template)
  const access: GuestAccess = new GuestAccess({ link: () => link })
  await using link = openLink(vm, {
    cloned: true,
    onStream: (stream, headers) => {
      access.handleStream(stream, headers)
    },
  })
  await Promise.all([waitForAgent(link), vm.fresh])
  await touchMemory(access, link)
  await link.park()

  const hibernatedAt = performance.now()
  const saved = await hibernateVm(vm, directory)
  const hibernateMs = performance.now() - hibernatedAt

  const { workspaceDisk } = vm.plan.options
  const options = { ...vmOptions(bench), ...(workspaceDisk === undefined ? {} : { workspaceDisk }) }
  const wokenAt = performance.now()
  await using woken = await wakeVm(options, saved)
  link.attachPorts(woken.rpc, woken.http)
  await Promise.all([waitForAgent(link), woken.fresh])
  const wakeMs = performance.now() - wokenAt
  const wakeCpuMs = await readCpuMs(woken.pid)
  link.close()
  await woken.stop()
  await rm(directory, { recursive: true })
  return { hibernateMs, wakeMs, wakeCpuMs }
}

async function touchMemory(access: GuestAccess, link: ReturnType<typeof openLink>): Promise<void> {
  await link.request(workspaceOpen, {}, { timeoutMs: AGENT_DEADLINE_MS })
  const opened = await access.openShell({ argv: ['python3', '-c', TOUCH], terminal: null })
  if (!opened.ok) throw new Error(JSON.stringify(opened.error))
  const shell = new Shell(opened.value)
  shell.stdin.end()
  const [errors, end] = await Promise.all([buffer(shell.stderr), shell.ended, buffer(shell.stdout)])
  if (end.kind !== 'exited' || end.exitCode !== 0) throw new Error(`touching memory: ${errors.toString()}`)
}
