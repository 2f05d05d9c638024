import { closeSync, openSync, readdirSync, readFileSync, readSync } from 'node:fs'
import { expect, it } from 'vitest'
import { reply } from '#specs/testing/model-replies.ts'
import { type Script, startModelServer } from '#specs/testing/model-server.ts'
import { testBench } from '../support/runs.ts'

const key = 'sk-only-the-host-knows-5f2c91d07be34a68'
const canary = 'canary-that-the-guest-must-hold-81c6'
const step = { id: 'wait', title: 'Wait', instructions: 'Wait', needs: [], writes: ['*'] }

const script: Script = ({ messages, tools }) => {
  if (tools.some(({ function: { name } }) => name === 'submit_plan'))
    return reply({ calls: [{ name: 'submit_plan', arguments: { goal: 'Wait', steps: [step] } }] })
  if (messages.at(-1)?.role === 'tool') return reply({ text: 'done' })
  return reply({ calls: [{ name: 'run_bash', arguments: { command: 'env; sleep 12' } }] })
}

it('keeps the model’s key out of the whole memory of the VM, which a server with that key serves [G.01]', async () => {
  await using server = await startModelServer(script)
  const { start, host } = await testBench(
    {},
    { CAISSON_LLM_URL: server.baseUrl, CAISSON_LLM_KEY: key, CAISSON_MODEL: 'scripted' },
  )
  const run = await start(`Wait for ${canary}`)
  let found: Record<string, boolean> | undefined
  for await (const item of run.watch()) {
    if (item.source !== 'agent' || item.event.type !== 'tool-start') continue
    const [vm] = await host.vms.list()
    found = searchMemory(findQemu(vm?.id ?? 'none'), [key, canary])
  }
  expect((await run.ended).end?.outcome).toBe('completed')
  expect(server.asked.map(({ headers }) => headers.authorization)).toContain(`Bearer ${key}`)
  // The canary shows that the search finds what is there.
  expect(found).toEqual({ [key]: false, [canary]: true })
}, 240_000)

function findQemu(vmId: string): number {
  const read = (pid: string, name: string) => {
    try {
      return readFileSync(`/proc/${pid}/${name}`, 'utf8')
    } catch {
      return ''
    }
  }
  const pid = readdirSync('/proc').find(
    (name) =>
      /^\d+$/.test(name) && read(name, 'comm').startsWith('qemu') && read(name, 'cmdline').includes(vmId),
  )
  if (pid === undefined) throw new Error(`expected a QEMU of ${vmId}, found none`)
  return Number(pid)
}

/** Which of the texts lie anywhere in the readable memory of a process. */
function searchMemory(pid: number, texts: readonly string[]): Record<string, boolean> {
  const found = Object.fromEntries(texts.map((text) => [text, false]))
  const overlap = Math.max(...texts.map((text) => text.length))
  const piece = Buffer.alloc(16 * 1024 * 1024)
  const memory = openSync(`/proc/${pid}/mem`, 'r')
  try {
    for (const [, from = '', to = ''] of readFileSync(`/proc/${pid}/maps`, 'utf8').matchAll(
      /^([0-9a-f]+)-([0-9a-f]+) r(?!.*\[v)/gm,
    )) {
      const end = Number.parseInt(to, 16)
      for (let at = Number.parseInt(from, 16); at < end; at += piece.length - overlap) {
        const bytes = readAt(memory, piece, at, Math.min(piece.length, end - at))
        for (const text of texts) found[text] ||= bytes.includes(text)
      }
    }
    return found
  } finally {
    closeSync(memory)
  }
}

/** Empty where the system lets nobody read, such as the gaps of a file's mapping. */
function readAt(file: number, into: Buffer, at: number, length: number): Buffer {
  try {
    return into.subarray(0, readSync(file, into, 0, length, at))
  } catch {
    return into.subarray(0, 0)
  }
}
