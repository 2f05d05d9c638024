import { existsSync, readFileSync } from 'node:fs'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { checkedModules, findTestedMutants } from './modules.ts'
import { applyMutant, findMutants } from './mutants.ts'

const root = path.join(import.meta.dirname, '../..')
const mutated = (text: string): string[] => findMutants(text).map((mutant) => applyMutant(text, mutant))

describe('mutants of a module', () => {
  it('negate conditions, swap operators, drop statements and change constants [T.03]', () => {
    expect(mutated('if (a && b) throw new Error()')).toEqual([
      'if (!(a && b)) throw new Error()',
      'if (a || b) throw new Error()',
      'if (a && b) ;',
    ])
    expect(mutated('stop()')).toEqual([';'])
    expect(mutated("const a = 1 < 2 ? true : 'deny'")).toEqual([
      "const a = !(1 < 2) ? true : 'deny'",
      "const a = 1 <= 2 ? true : 'deny'",
      "const a = 2 < 2 ? true : 'deny'",
      "const a = 1 < 3 ? true : 'deny'",
      "const a = 1 < 2 ? false : 'deny'",
      "const a = 1 < 2 ? true : 'allow'",
    ])
  })

  it('leave types and imports as they are, and keep characters of two units in place [T.03]', () => {
    expect(mutated("import a from 'deny'\ntype B = 'allow' | 1\nlet c: 2 = (3 as 4)")).toEqual([
      "import a from 'deny'\ntype B = 'allow' | 1\nlet c: 2 = (4 as 4)",
    ])
    expect(mutated('// 😀 “”\nlet a = true')).toEqual(['// 😀 “”\nlet a = false'])
    expect(findMutants('\n\nlet a = true')).toMatchObject([{ line: 3, change: 'true -> false' }])
  })

  it.each(checkedModules)(
    'are made of $file, which is here with its tests and its essential texts [T.03]',
    (module) => {
      expect([module.file, ...module.tests].filter((file) => !existsSync(path.join(root, file)))).toEqual([])
      const text = readFileSync(path.join(root, module.file), 'utf8')
      const { essential = [], equivalent = [] } = module
      for (const { from } of [...essential, ...equivalent]) expect(text.split(from)).toHaveLength(2)
      // Each of the equivalent ones is a mutant.
      expect(findTestedMutants(module, text)).toHaveLength(findMutants(text).length - equivalent.length)
    },
  )
})
