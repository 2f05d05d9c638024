/**
 * Shell completion: the scripts, and the hidden command `complete`, which they call at each Tab with the words so far.
 * The scripts evaluate nothing of the line: a `$(…)` that is being typed must not run at Tab. Where the command line
 * offers nothing, bash and zsh offer files.
 */
import tab, { type Complete, type RootCommand } from '@bomb.sh/tab'
import addTab from '@bomb.sh/tab/commander'
import type { Command } from 'commander'
import type { Io } from './io.ts'

/** The script of a shell. Those for bash and zsh are our own: the library's evaluate what is being typed. */
export function printCompletion(shell: string, { stdout }: Pick<Io, 'stdout'>): void {
  if (shell === 'bash') stdout.write(bashCompletion)
  else if (shell === 'zsh') stdout.write(zshCompletion)
  else tab.setup('caisson', 'caisson', shell)
}

/** Needs no other package. */
const bashCompletion = `# bash completion for caisson
_caisson() {
  local word line typed=\${COMP_WORDS[COMP_CWORD]}
  local -a words=()
  # bash splits --option=value into three words.
  for word in "\${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
    [[ $word == = ]] || words+=("$word")
  done
  [[ $typed == = ]] && typed=
  COMPREPLY=()
  while IFS= read -r line; do
    line=\${line%%$'\\t'*}
    [[ $line != :[0-9]* && $line == "$typed"* ]] && COMPREPLY+=("$line")
  done < <(caisson complete -- "\${words[@]}" "$typed" 2>/dev/null)
}
complete -o default -F _caisson caisson
`

const zshCompletion = `#compdef caisson
# zsh completion for caisson
_caisson() {
  local line value
  # (Q) takes quotes away and runs nothing.
  local -a before=("\${(@Q)words[2,CURRENT-1]}") offered=()
  if [[ $PREFIX == --*=* ]]; then
    before+=("\${PREFIX%%=*}")
    compset -P '*='
  fi
  while IFS= read -r line; do
    [[ $line == :[0-9]* ]] && continue
    value=\${line%%$'\\t'*}
    offered+=("\${value//:/\\\\:}:\${line#*$'\\t'}")
  done < <(caisson complete -- "\${before[@]}" "\${(Q)PREFIX}" 2>/dev/null)
  (( $#offered )) && _describe -t values caisson offered && return
  _files
}
if [[ \${funcstack[1]} == _caisson ]]; then
  _caisson "$@"
else
  compdef _caisson caisson
fi
`

/** Adds the command `complete`. @param words what follows `complete --` */
export async function addComplete(program: Command, io: Io, words: readonly string[]): Promise<void> {
  // The library adds a `completion` command of its own, and there can be one of that name.
  const commands = program.commands as Command[]
  commands.splice(
    commands.findIndex((command) => command.name() === 'completion'),
    1,
  )
  await offerRuns(addTab(program, { completionCommandName: 'completion' }), io, words)
}

const runArguments = ['run', 'run...']
const runOptions = ['continue', 'replay', 'plan-from']
const offeredMaxCount = 50

/** Offers the newest runs where the command takes one; other commands load no library for that. */
async function offerRuns(root: RootCommand, io: Io, words: readonly string[]): Promise<void> {
  const typed = words.slice(0, -1)
  const named = [...root.commands.values()].filter(({ value }) =>
    value.split(' ').every((name, at) => name !== '' && name === typed[at]),
  )
  const command = named.at(-1)
  if (command === undefined) return
  const isOption = runOptions.some((name) => typed.at(-1) === `--${name}`)
  const fields = [
    ...runArguments.flatMap((name) => command.arguments.get(name) ?? []),
    ...(isOption ? runOptions.flatMap((name) => command.options.get(name) ?? []) : []),
  ]
  if (fields.length === 0 || words.at(-1)?.startsWith('-') === true) return
  const runs = await listRuns(io)
  const offer = (complete: Complete): void => {
    complete('last', 'the most recently started run of this directory')
    for (const { runId, about } of runs) complete(runId, about)
  }
  for (const field of fields) field.handler = offer
}

async function listRuns(io: Io): Promise<{ readonly runId: string; readonly about: string }[]> {
  const { hostOf } = await import('./io.ts')
  const { sanitizeLine } = await import('./render/sanitize.ts')
  // At Tab there is no place for an error.
  const page = await hostOf(io)
    .runs.page({ limit: offeredMaxCount })
    .catch(() => undefined)
  return (page?.runs ?? []).map(({ id, prompt }) => ({ runId: id, about: sanitizeLine(prompt, 60) }))
}
