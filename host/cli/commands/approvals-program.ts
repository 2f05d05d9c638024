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
      .argument('<approval>', 'its id as listed, or the beginning of it')
  const scope = (choices: readonly ApprovalScope[]) =>
    new Option('--scope <scope>', 'how long it holds').choices(choices).default('once')
  approvals
    .command('list')
    .argument('[run]', `${runArgument} (default: all at work)`)
    .description('What runs wait for a person to answer')
    .option('--json', 'one JSON object a line')
    .action(run(async () => (await load()).approvalsList))
  about('answer')
    .argument('[value...]', 'the answer; of several choices each; behind -- what begins with a dash')
    .description('Answers a question that the agent asks')
    .option('--default', 'takes its default')
    .option('--hint <text>', 'a word with it')
    .action(run(async () => (await load()).approvalsAnswer))
  about('allow')
    .description('Allows a call of a tool, a plan or a way out')
    .addOption(scope(['once', 'run', 'always']))
    .addOption(new Option('--reach <reach>', 'of a way out: how far around the address').choices(reaches))
    .action(run(async () => (await load()).approvalsAllow))
  about('deny')
    .description('Denies it, or declines to answer')
    .addOption(scope(['once', 'run']))
    .option('--hint <text>', 'what the agent should do instead')
    .action(run(async () => (await load()).approvalsDeny))
}
