// The journal of a run whose disk stays full: the fault is injected into the file handles of this process.
import { type FileHandle, open } from 'node:fs/promises'
import { expect, it, onTestFinished } from 'vitest'
import { CaissonError } from '#specs/errors.ts'
import type { HostEvent } from '#specs/protocol/event.ts'
import { noUsage } from '#specs/protocol/task.ts'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { readJournal } from '../../journal/journal.ts'
import { RunRecord } from '../../journal/run-record.ts'
import { newRunId, RunStore } from '../../journal/run-store.ts'

const end = {
  type: 'run-end',
  outcome: 'cancelled',
  reason: 'cancelled',
  message: 'cancelled by a person',
  summary: '',
  usage: noUsage,
  durationMs: 1,
} as const satisfies HostEvent

/** From now until the test ends, files cannot be appended to while `isFull` says so. */
async function injectFullDisk(isFull: () => boolean): Promise<void> {
  await using some = await open('/dev/null')
  const prototype = Object.getPrototypeOf(some) as FileHandle
  const append = prototype.appendFile
  prototype.appendFile = async function (this: FileHandle, ...args) {
    if (isFull()) throw Object.assign(new Error('ENOSPC: no space left on device'), { code: 'ENOSPC' })
    await append.apply(this, args)
  }
  onTestFinished(() => {
    prototype.appendFile = append
  })
}

it('has no line behind one that was given up, but the end, for which a run gives its disk up [W.05 R.01]', async () => {
  let isFull = false
  await injectFullDisk(() => isFull)
  const folder = await temporaryFolder('no-space')
  const store = new RunStore({ runs: folder, locks: folder })
  const paths = await store.create(newRunId())
  const record = await RunRecord.open(paths)
  record.waitForDiskSpace(() => Promise.reject(new CaissonError('no_space', 'the disk is full')))
  await record.host({ type: 'steer-request', messageId: 'm-1', text: 'first', by: 'ada' })
  isFull = true
  const second = record.host({ type: 'steer-request', messageId: 'm-2', text: 'second', by: 'ada' })
  await expect(second).rejects.toMatchObject({ code: 'no_space' })
  isFull = false
  const third = record.host({ type: 'steer-request', messageId: 'm-3', text: 'third', by: 'ada' })
  await expect(third).rejects.toMatchObject({ code: 'no_space' })
  isFull = true
  await record.conclude(end, async () => {
    isFull = false
  })
  await record[Symbol.asyncDispose]()
  const types = (await readJournal(paths.journal, paths.runId)).map(({ event }) => event.type)
  expect(types).toEqual(['steer-request', 'run-end'])
})
