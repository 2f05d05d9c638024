// Checks the import directions of dependencies.ts. Fails when it reads no modules, when a pattern matches no file,
// and when a folder has no layer.
import { cruise } from 'dependency-cruiser'
import rules, { layers } from './dependencies.ts'

const packages = [
  'specs',
  'runtime',
  'agent',
  'host',
  'client',
  'goals',
  'page',
  'vscode',
  'vm-image',
  'scripts',
  'test',
]
const report = await cruise(packages, {
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
for (const name of packages) {
  if (!output.modules.some((module) => module.source.startsWith(`${name}/`)))
    problems.push(`read no modules in ${name}/`)
}
problems.push(...findUnmatchedPatterns(), ...findFoldersWithoutLayer())
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

/** Folders that `layers` does not list: their imports would be free. */
function findFoldersWithoutLayer(): string[] {
  const folders = output.modules.map(({ source }) => source.split('/').slice(0, -1))
  return Object.entries(layers).flatMap(([name, order]) => {
    const known = new Set(['test', ...order.flat()])
    const found = folders.flatMap(([first, second]) =>
      first === name && second !== undefined ? [second] : [],
    )
    return [...new Set(found)]
      .filter((folder) => !known.has(folder))
      .map((folder) => `${name}/${folder} has no layer; add it to scripts/dependencies.ts`)
  })
}

/** All `path` and `pathNot` entries of a rule. */
function patternsOf(rule: { readonly from: object; readonly to: object }): string[] {
  return [rule.from, rule.to]
    .flatMap((side) => Object.entries(side))
    .filter(([key]) => key === 'path' || key === 'pathNot')
    .flatMap(([, value]) => value as string | string[])
}
