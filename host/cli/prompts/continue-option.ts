/** `--continue TASK`: an option whose value may be absent takes the next word, here the task. Says which words are runs. */

/** What `RunStore.find` can find; whatever else stands behind `--continue` is the task. */
const runName = /^(last|run-\S*|[0-9a-f]{1,20})$/

/** The arguments of `caisson run` with `--continue=last` where a task follows, or nothing that could be its value. */
export function settleContinue(argv: readonly string[]): string[] {
  const end = argv.indexOf('--')
  return argv.map((argument, at) => {
    if (argument !== '--continue' || (end >= 0 && at > end)) return argument
    const next = argv[at + 1]
    return next === undefined || next.startsWith('-') || runName.test(next) ? argument : '--continue=last'
  })
}
