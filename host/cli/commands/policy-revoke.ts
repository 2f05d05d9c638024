/** `caisson policy revoke`: lists the ways out that a person opened or closed for always, and takes them back. */
import { CaissonError } from '#specs/errors.ts'
import { toAnswerRule } from '../../egress/grants.ts'
import { type PersistentGrant, PersistentGrants } from '../../egress/persistent-grants.ts'
import { prepareFolders } from '../../state/folders.ts'
import { type ExitCode, exitCodes } from '../exit-codes.ts'
import { hostOf, type Io } from '../io.ts'
import { sanitizeLine } from '../render/sanitize.ts'

/** @param numbers as listed; none: lists them */
export async function policyRevoke(io: Io, numbers: readonly string[]): Promise<ExitCode> {
  const { folders } = hostOf(io)
  await prepareFolders(folders)
  const lasting = new PersistentGrants(folders)
  const kept = new Map(lasting.list().map((grant) => [String(grant.id), grant]))
  const unknown = numbers.filter((number) => !kept.has(number))
  if (unknown.length > 0)
    throw new CaissonError(
      'invalid_options',
      `no grant has the number ${unknown.join(', ')}; list them: caisson policy revoke`,
    )
  for (const number of numbers) {
    const revoked = await lasting.revoke(Number(number))
    if (revoked !== null) io.stdout.write(`revoked ${lineOf(revoked)}\n`)
  }
  if (numbers.length > 0) return exitCodes.completed
  for (const grant of kept.values()) io.stdout.write(`${lineOf(grant)}\n`)
  io.stdout.write(
    kept.size === 0
      ? 'no permanent grants\n'
      : 'To revoke one, also in active runs: caisson policy revoke NUMBER\n',
  )
  return exitCodes.completed
}

function lineOf({ id, rule, runId, at }: PersistentGrant): string {
  const read = toAnswerRule(rule, 'grant-always')
  const when = new Date(at).toISOString().slice(0, 16).replace('T', ' ')
  return `${id}  ${when}  ${sanitizeLine(read.ok ? read.value.words : read.error)} · asked in ${runId}`
}
