/**
 * The completion script for bash. Needs no other package, and evaluates nothing of the line: a `$(…)` that is being typed
 * must not run at Tab. Where the command line offers nothing, bash offers files.
 */
export const bashCompletion = `# bash completion for caisson
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
