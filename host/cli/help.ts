/** Examples and the page of the documentation at the end of each command's `--help`; the man page has them too. */
import type { Command } from 'commander'

interface Help {
  /** What follows `caisson`; shown by the command that it runs and by the group of that. */
  readonly examples: readonly string[]
  /** In the package and in the repository. */
  readonly page: string
}

/** By the command below `caisson`. */
export const commandHelp: Readonly<Record<string, Help>> = {
  run: {
    examples: [
      'run "Count the words of every file"',
      'run -w ~/project --apply "Create notes.txt with the content \'hello\'"',
      'run --add-dir ~/data "List the files in /mnt/folders/data"',
      'run --image mockup.png "Make index.html look like the picture"',
      'run -q -o answer.txt - < task.txt',
      'run --approve-plan --max-time 20m "Port it to Python 3"',
    ],
    page: 'docs/first-run.md',
  },
  chat: {
    examples: ['chat', 'chat --continue last', 'chat --effort high', 'chat -- --allow-host example.com'],
    page: 'docs/conversation.md',
  },
  attach: { examples: ['attach last'], page: 'docs/commands.md' },
  replay: { examples: ['replay last'], page: 'docs/export-and-replay.md' },
  doctor: { examples: ['doctor'], page: 'docs/install.md' },
  image: { examples: ['image build', 'image verify'], page: 'specs/vm.md' },
  clean: { examples: ['clean', 'clean --yes'], page: 'docs/troubleshooting.md' },
  vm: {
    examples: [
      'vm list',
      'vm shell last',
      'vm shell last -- ls -l',
      'vm forward last 8080:80',
      'vm logs last --follow',
      'vm stats --no-stream',
    ],
    page: 'specs/developer-access.md',
  },
  config: {
    examples: ['config path', 'config check', 'config check -c model=qwen3'],
    page: 'specs/configuration.md',
  },
  models: { examples: ['models', 'models nvidia'], page: 'docs/real-model.md' },
  workflow: {
    examples: [
      'workflow run flow.workflow.json --input @input.json',
      'workflow draw --svg -o flow.svg flow.workflow.json',
      'workflow publish flow.workflow.json',
    ],
    page: 'docs/workspace.md',
  },
  policy: {
    examples: ['policy check https://example.com/', 'policy explain', 'policy revoke 2'],
    page: 'docs/network-access.md',
  },
  key: { examples: ['key set nvidia', 'key list'], page: 'specs/configuration.md' },
  runs: {
    examples: [
      'runs list --filter status=failed --last 10',
      'runs show last',
      'runs steer last "Leave the tests as they are"',
      'runs cancel last',
      'runs cancel last --agent tests',
      'runs export last -o run.caisson',
      'runs import run.caisson',
    ],
    page: 'docs/commands.md',
  },
  approvals: {
    examples: ['approvals list', 'approvals allow last ap-1', 'approvals remembered last'],
    page: 'docs/approvals.md',
  },
  serve: {
    examples: [
      'serve',
      'serve --port 8080 --allow-workspace ~/projects',
      'serve --parallel-runs 4 --max-queue 200',
      'serve --pool 2',
      'serve --fleet postgres://caisson@db.example.com/caisson?sslmode=verify-full --fleet-files /srv/caisson',
      'serve keys create ci --scope run,read --expires 30d --max-runs 2',
      'serve keys list',
      'serve keys revoke ci',
      'serve --jwks https://id.example.com/keys --jwt-issuer https://id.example.com --jwt-audience caisson',
      'serve --env-file .env',
      'serve --no-token',
    ],
    page: 'docs/http.md',
  },
  fleet: {
    examples: [
      'fleet prepare --role caisson_host',
      'fleet status --fleet-file /etc/caisson/fleet',
      'fleet hosts --json',
      'fleet drain worker-1',
      'fleet drain worker-1 --undo',
      'fleet move RUN worker-2',
    ],
    page: 'docs/fleet.md',
  },
  acp: { examples: ['acp', 'acp --ram 1G', 'acp --unstable v2'], page: 'docs/editors.md' },
  memory: { examples: ['memory list', 'memory add "The tests need a database"'], page: 'specs/memory.md' },
  notes: { examples: ['notes list', 'notes add PROP-1 "Agreed"'], page: 'docs/commands.md' },
  skills: { examples: ['skills list'], page: 'specs/skills.md' },
  mcp: {
    examples: ['mcp serve -w ~/project', 'mcp login tracker', 'mcp list', 'mcp forget notes'],
    page: 'docs/mcp-clients.md',
  },
  workspace: {
    examples: [
      'workspace diff last',
      'workspace apply last src/',
      'workspace apply last notes.txt:2,4-6',
      'workspace blame last src/a.ts:12',
      'workspace merge last README.md',
      'workspace undo last',
    ],
    page: 'docs/review-changes.md',
  },
  completion: {
    examples: ['completion bash > ~/.local/share/bash-completion/completions/caisson'],
    page: 'docs/commands.md',
  },
}

/** The names below `caisson`, such as `vm shell`; empty for the program itself. */
export function pathOf(command: Command): string {
  const parent = command.parent
  return parent === null ? '' : `${pathOf(parent)} ${command.name()}`.trim()
}

/** The examples of a command, or of all commands below it. */
export function examplesOf(command: Command): string[] {
  const path = pathOf(command)
  const { examples = [] } = commandHelp[path.split(' ')[0] ?? ''] ?? {}
  return examples
    .filter((example) => `${example} `.startsWith(`${path} `))
    .map((example) => `caisson ${example}`)
}

/** Commands with a page other than that of their group. */
const ownPages: Readonly<Record<string, string>> = {
  'mcp login': 'docs/mcp-servers.md',
  'mcp logout': 'docs/mcp-servers.md',
  'mcp list': 'docs/mcp-servers.md',
  'mcp forget': 'specs/mcp.md',
}

export function pageOf(command: Command): string {
  const path = pathOf(command)
  return ownPages[path] ?? commandHelp[path.split(' ')[0] ?? '']?.page ?? 'docs/commands.md'
}

/** Adds both to a command and to those below it. */
export function addHelpEnd(command: Command): void {
  command.addHelpText('after', () => {
    const examples = examplesOf(command)
    const shown =
      examples.length === 0 ? '' : `\nExamples:\n${examples.map((line) => `  ${line}\n`).join('')}`
    return `${shown}\nDocumentation: ${pageOf(command)}`
  })
  for (const below of command.commands) addHelpEnd(below)
}
