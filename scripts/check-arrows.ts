// Checks the import directions of arrows.ts; a check that reads no modules is a failure, not a pass.
import { cruise } from 'dependency-cruiser'
import rules from './arrows.ts'

const rooms = ['specs', 'runtime', 'agent', 'host']
const report = await cruise(rooms, {
  ruleSet: { forbidden: rules.forbidden },
  validate: true,
  ...rules.options,
} as never)
const output = report.output as unknown as {
  modules: { source: string; dependencies: { module: string; couldNotResolve: boolean }[] }[]
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
for (const problem of problems) console.error(problem)
console.log(`${output.modules.length} modules, ${problems.length} problems`)
process.exit(problems.length === 0 ? 0 : 1)
