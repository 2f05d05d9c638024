/** The commands below `approvals`. */
import { type Command, Option } from 'commander'
import type { ApprovalScope } from '#specs/protocol/approval.ts'
import type { AccessReach } from '#specs/protocol/egress.ts'
import type { Action } from './vm-program.ts'

// Not from the schemas, which would be loaded for every command.
const reaches: readonly AccessReach[] = ['host', 'suffix', 'path']

export function addApprovalCommands(
  approvals: Command,
  run: (load: () => Promise<Action>) => (...args: unknown[]) => Promise<void>,
  runArgument: string,
): void {
  const load = () => import('./approvals.ts')
  const about = (name: string) =>
    approvals
      .command(name)
      .argument('<run>', runArgument)
      .argument('<approval>', 'ID as listed, or a unique prefix of it')
  const scope = (choices: readonly ApprovalScope[]) =>
    new Option('--scope <scope>', 'how long the decision is valid').choices(choices).default('once')
  approvals
    .command('list')
    .argument('[run]', `${runArgument} (default: all active runs)`)
    .description('List open approvals and questions')
    .option('--json', 'print one JSON object per line')
    .action(run(async () => (await load()).approvalsList))
  about('answer')
    .argument(
      '[value...]',
      'the answer, or several of the choices; put values that start with a dash after --',
    )
    .description('Answer a question of the agent')
    .option('--default', 'use the default answer of the question')
    .option('--hint <text>', 'a comment for the agent')
    .action(run(async () => (await load()).approvalsAnswer))
  about('allow')
    .description('Allow a tool call, a plan or network access')
    .addOption(scope(['once', 'run', 'always']))
    .addOption(
      new Option('--reach <reach>', 'for network access: how much to allow around the address').choices(
        reaches,
      ),
    )
    .action(run(async () => (await load()).approvalsAllow))
  about('deny')
    .description('Deny an approval, or decline to answer a question')
    .addOption(scope(['once', 'run']))
    .option('--hint <text>', 'what the agent should do instead')
    .action(run(async () => (await load()).approvalsDeny))
}
