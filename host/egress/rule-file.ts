/**
 * Reads the egress rules of one run from the command line: a TOML file of `[[rules]]` in the form of the configuration,
 * and host names. Refuses what the configuration would refuse.
 */

import { readFile } from 'node:fs/promises'
import { parse, TomlError } from 'smol-toml'
import * as z from 'zod'
import { CaissonError } from '#specs/errors.ts'
import { reasonOf } from '#specs/node/file-error.ts'
import { EgressRule } from '#specs/protocol/egress.ts'
import { describeIssues, plainMessages } from '#specs/protocol/issue-text.ts'
import { readRule, readRules } from './rules.ts'

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
  const ready = readRules(parsed.data.rules, 'run', 'rules')
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
