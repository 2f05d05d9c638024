/** `caisson policy check` and `explain`: what may leave a VM by the configuration, the flags and the answers for always. */

import { existsSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { parse, TomlError } from 'smol-toml'
import * as z from 'zod'
import { CaissonError } from '#specs/errors.ts'
import { reasonOf } from '#specs/node/file-error.ts'
import { EgressRule } from '#specs/protocol/egress.ts'
import { describeIssues, plainMessages } from '#specs/protocol/issue-text.ts'
import { configFile } from '../../config/load.ts'
import { RunGrants, toAnswerRule } from '../../egress/grants.ts'
import { type PersistentGrant, PersistentGrants } from '../../egress/persistent-grants.ts'
import type { EgressPolicy } from '../../egress/policy.ts'
import { isOpen, type PolicyPreview, previewAccess } from '../../egress/policy-preview.ts'
import { resolveName } from '../../egress/resolve.ts'
import { orderRules, type PolicyRule, readEgressRules, readRule } from '../../egress/rules.ts'
import { formatTime } from '../../files/format.ts'
import type { Network } from '../../net/network.ts'
import type { Target } from '../../net/target.ts'
import { describeTarget, parseTarget } from '../../net/target.ts'
import { Settings } from '../../settings.ts'
import { prepareFolders } from '../../state/folders.ts'
import { type ExitCode, exitCodes } from '../exit-codes.ts'
import { hostOf, type Io } from '../io.ts'
import { writeJsonLine } from '../render/json-lines.ts'
import { sanitizeLine } from '../render/sanitize.ts'

interface PolicyFlags {
  readonly allowHost?: string[]
  readonly egress?: string
  readonly json?: boolean
}

/** What would become of a target. */
interface Seen {
  readonly target: Target
  readonly preview: PolicyPreview
  /** The user's proxy on the way, as it may be shown. */
  readonly proxy: string | null
}

/** A request, and for https the tunnel that programs make: 0 when the request would go out unasked, 3 otherwise. */
export async function policyCheck(
  io: Io,
  url: string,
  flags: PolicyFlags & { method: string },
): Promise<ExitCode> {
  const target = parseTarget(url, flags.method)
  if (!target.ok) throw new CaissonError('invalid_options', target.error)
  const { policy, grants, network } = await inForce(io, flags)
  const parts = { policy, grants, resolve: resolveName, signal: new AbortController().signal }
  const look = async (to: Target): Promise<Seen> => ({
    target: to,
    preview: await previewAccess(to, parts),
    proxy: network.proxyFor(to)?.shown ?? null,
  })
  const request = await look(target.value)
  const isTls = target.value.scheme === 'https'
  const tunnel = isTls ? await look({ ...target.value, method: null, path: null }) : undefined
  if (flags.json === true) {
    const value = { request: asJson(request), ...(tunnel === undefined ? {} : { tunnel: asJson(tunnel) }) }
    await writeJsonLine(io.stdout, value)
  } else for (const seen of [request, tunnel]) if (seen !== undefined) show(io, seen)
  return isOpen(request.preview) ? exitCodes.completed : exitCodes.cancelled
}

/** The rules, the strongest first. */
export async function policyExplain(io: Io, flags: PolicyFlags): Promise<ExitCode> {
  const { policy, grants } = await inForce(io, flags)
  const answers = orderRules([...grants.reusable(), ...grants.refusals()])
  if (flags.json === true) {
    const plain = ({ rule, origin }: PolicyRule): EgressRule & { origin: string } => ({ ...rule, origin })
    const { otherwise } = policy
    const value = { rules: policy.rules.map(plain), answers: answers.map(plain), otherwise }
    await writeJsonLine(io.stdout, value)
    return exitCodes.completed
  }
  const file = configFile(hostOf(io).folders)
  const lines = [
    `The configuration is ${sanitizeLine(file)}${existsSync(file) ? '' : ', which does not exist'}.`,
    policy.rules.length === 0
      ? 'There are no rules.'
      : 'Highest precedence first: deny overrides ask, ask overrides allow; the order in the file does not matter.',
    ...policy.rules.map(({ text }) => `  ${sanitizeLine(text)}`),
    ...(answers.length === 0
      ? []
      : [
          'Permanent grants and denials; they apply where the rules ask or do not allow (to revoke: caisson policy revoke):',
        ]),
    ...answers.map(({ text }) => `  ${sanitizeLine(text)}`),
    policy.otherwise === 'ask'
      ? 'Everything else requires approval; addresses in your network require a rule that names them.'
      : 'Everything else is denied; the agent can ask for access with request_access.',
    'These rules do not apply to the model server, which the host itself connects to.',
  ]
  io.stdout.write(`${lines.join('\n')}\n`)
  return exitCodes.completed
}

/** What a run with these flags would go by. */
async function inForce(
  io: Io,
  flags: PolicyFlags,
): Promise<{ policy: EgressPolicy; grants: RunGrants; network: Network }> {
  const host = hostOf(io)
  await prepareFolders(host.folders)
  const policy = await host.egressPolicy(await rulesOfFlags(flags))
  // No run: it keeps no answers.
  const lasting = new PersistentGrants(host.folders)
  // Throws with the code of what is wrong.
  lasting.list()
  const grants = new RunGrants(lasting, '', () => [])
  const problem = grants.refresh()
  if (problem !== null) throw new CaissonError('state_corrupted', problem)
  const settings = new Settings({ folders: host.folders, env: io.env })
  return { policy, grants, network: settings.network(await host.config()) }
}

function show(io: Io, { target, preview, proxy }: Seen): void {
  const { decision, addresses, lookupProblem } = preview
  const lines = [
    `${sanitizeLine(describeTarget(target))}: ${decision.effect}`,
    `  rule     ${sanitizeLine(decision.rule)}`,
    ...addresses.map(
      ({ address, problem }) =>
        `  address  ${address}${problem === null ? '' : `  refused: ${sanitizeLine(problem)}`}`,
    ),
    ...(lookupProblem === undefined ? [] : [`  address  ${sanitizeLine(lookupProblem)}`]),
    ...(proxy === null ? [] : [`  proxy    ${sanitizeLine(proxy)}, which resolves the name itself`]),
  ]
  io.stdout.write(`${lines.join('\n')}\n`)
}

function asJson({ target, preview, proxy }: Seen): object {
  const { decision, addresses, lookupProblem } = preview
  return {
    target: describeTarget(target),
    effect: decision.effect,
    rule: decision.rule,
    addresses: addresses.map(({ address, problem }) => ({
      address,
      ...(problem === null ? {} : { problem }),
    })),
    ...(lookupProblem === undefined ? {} : { lookupProblem }),
    ...(proxy === null ? {} : { proxy }),
  }
}

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
  return `${id}  ${formatTime(at)}  ${sanitizeLine(read.ok ? read.value.text : read.error)} · asked in ${runId}`
}

/** Longest file of rules. */
const maxBytes = 1024 * 1024
const RuleFile = z.strictObject({ rules: z.array(EgressRule).max(1_000) })

/** @throws {CaissonError} `invalid_rules` with the flag or file, the position and what to do */
export async function rulesOfFlags(flags: {
  readonly allowHost?: readonly string[]
  readonly egress?: string
}): Promise<EgressRule[]> {
  const named = (flags.allowHost ?? []).map(allowHost)
  return flags.egress === undefined ? named : [...named, ...(await readRuleFile(flags.egress))]
}

async function readRuleFile(path: string): Promise<EgressRule[]> {
  const text = await readFile(path, 'utf8').catch((cause: unknown) => {
    throw new CaissonError('invalid_rules', `cannot read the egress rules in ${path}: ${reasonOf(cause)}`, {
      cause,
    })
  })
  if (text.length > maxBytes)
    throw new CaissonError('invalid_rules', `${path} is longer than ${maxBytes} bytes`)
  const parsed = RuleFile.safeParse(tableOf(text, path), plainMessages)
  if (!parsed.success)
    throw new CaissonError('invalid_rules', `${path}: ${describeIssues(parsed.error, { root: 'the file' })}`)
  const ready = readEgressRules(parsed.data.rules, 'run', 'rules')
  if (!ready.ok) throw new CaissonError('invalid_rules', `${path}: ${ready.error}`)
  return parsed.data.rules
}

/** The rule that allows programs to reach a host over https. */
function allowHost(host: string): EgressRule {
  const rule: EgressRule = { effect: 'allow', host }
  const ready = readRule(rule, 'run')
  if (ready.ok) return rule
  throw new CaissonError(
    'invalid_rules',
    `--allow-host ${ready.error}. For more than https on port 443 write a file for --egress.`,
  )
}

function tableOf(text: string, path: string): unknown {
  try {
    return parse(text)
  } catch (cause) {
    if (!(cause instanceof TomlError)) throw cause
    throw new CaissonError(
      'invalid_rules',
      `${path}, line ${cause.line}: not TOML: ${cause.message.split('\n')[0]}`,
      { cause },
    )
  }
}
