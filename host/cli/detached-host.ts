#!/usr/bin/env node
/**
 * The background process of `caisson run --detach`: carries one run out without a terminal. Takes its order from standard
 * input, so that no key is among its arguments, and replies on descriptor 3 when the run's journal is open.
 */
import { closeSync, writeSync } from 'node:fs'
import { rename } from 'node:fs/promises'
import { text } from 'node:stream/consumers'
import { CaissonError } from '#specs/errors.ts'
import { Host } from '../host.ts'
import type { Run } from '../runs/run.ts'
import { ownChanges } from './commands/changes-of-run.ts'
import { reviewAndApply } from './commands/review-changes.ts'
import { type DetachedOrder, type DetachedReply, readOrder, replyFd } from './detached-order.ts'
import { sanitizeLine } from './render/sanitize.ts'

const say = (line: string): void =>
  void process.stdout.write(`${new Date().toISOString()} ${sanitizeLine(line, 2_000)}\n`)

function reply(message: DetachedReply): void {
  try {
    writeSync(replyFd, `${JSON.stringify(message)}\n`)
    closeSync(replyFd)
  } catch {
    // Whoever started it is gone; the run continues.
  }
}

/** Nothing is printed or read. */
const { stdin, stdout, stderr, env } = process
const ownIo = { stdin, stdout, stderr, env, version: '' }

async function begin(host: Host, order: DetachedOrder): Promise<Run> {
  const how = {
    leaveOnSleep: true,
    onProgress: say,
    onNotes: (notes: readonly string[]) => notes.forEach(say),
  }
  if (order.kind === 'resume') {
    const { runId, takeOver, fromBeginning } = order
    return await host.resume(runId, { ...how, interactive: true, takeOver, fromBeginning })
  }
  const { options } = order
  return await host.run({ ...options, ...how, approvals: { ...options.approvals, interactive: true } })
}

async function carryOut(order: DetachedOrder): Promise<void> {
  await using host = new Host({ overrides: order.overrides })
  const run = await begin(host, order)
  await rename(order.log, host.runs.paths(run.id).hostLog)
  reply({ ok: true, runId: run.id })
  const state = await run.ended
  say(
    state.end === null
      ? 'the run sleeps until its approvals are answered or, if it is paused, until it is resumed'
      : `the run ended: ${state.end.outcome}`,
  )
  if (state.changes !== null && order.apply)
    await reviewAndApply(ownIo, await ownChanges(host, run.id), {
      choice: true,
      state,
      emit: async () => undefined,
    })
}

try {
  await carryOut(readOrder(await text(process.stdin)))
} catch (error) {
  const { code, message } = CaissonError.from(error)
  reply({ ok: false, code, message })
  say(message)
  process.exitCode = 1
}
