// Checks the import directions of arrows.ts. Reading no modules is a failure, and so is a pattern that matches no file.
import { cruise } from 'dependency-cruiser'
import rules from './arrows.ts'

const rooms = ['specs', 'runtime', 'agent', 'host', 'scripts']
const report = await cruise(rooms, {
  ruleSet: { forbidden: rules.forbidden },
  validate: true,
  ...rules.options,
} as never)
const output = report.output as unknown as {
  modules: {
    source: string
    dependencies: { module: string; resolved: string; couldNotResolve: boolean }[]
  }[]
  summary: { violations: { rule: { name: string }; from: string; to: string }[] }
}
const unresolved = output.modules.flatMap((module) =>
  module.dependencies
    .filter((dependency) => dependency.couldNotResolve && dependency.module.startsWith('#'))
    .map((dependency) => `${module.source}: cannot resolve ${dependency.module}`),
)
const problems = output.summary.violations
  .map((found) => `${found.rule.name}: ${found.from} -> ${found.to}`)
  .concat(unresolved)
for (const room of rooms) {
  if (!output.modules.some((module) => module.source.startsWith(`${room}/`)))
    problems.push(`read no modules in ${room}/`)
}
problems.push(...findUnmatchedPatterns())
for (const problem of problems) console.error(problem)
console.log(`${output.modules.length} modules, ${problems.length} problems`)
process.exit(problems.length === 0 ? 0 : 1)

/** Patterns of the rules that match no file: a renamed file would otherwise leave a rule that checks nothing. */
function findUnmatchedPatterns(): string[] {
  const files = output.modules.flatMap(({ source, dependencies }) => [
    source,
    ...dependencies.map(({ resolved }) => resolved),
  ])
  return rules.forbidden.flatMap(({ name, from, to }) =>
    patternsOf({ from, to })
      .filter((pattern) => !files.some((file) => new RegExp(pattern).test(file)))
      .map((pattern) => `${name}: ${pattern} matches no file; correct the rule`),
  )
}

/** All `path` and `pathNot` entries of a rule. */
function patternsOf(rule: { readonly from: object; readonly to: object }): string[] {
  return [rule.from, rule.to]
    .flatMap((side) => Object.entries(side))
    .filter(([key]) => key === 'path' || key === 'pathNot')
    .flatMap(([, value]) => value as string | string[])
}
