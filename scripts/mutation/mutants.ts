// Small changes of a module's text. A test should notice each one. It parses the text and runs nothing.
import { parseAst } from 'vitest/node'

export interface Mutant {
  readonly start: number
  readonly end: number
  readonly replacement: string
  /** From 1. */
  readonly line: number
  /** What changes, in words. */
  readonly change: string
}

interface Node {
  readonly type: string
  readonly start: number
  readonly end: number
  readonly [key: string]: unknown
}

const operators: Readonly<Record<string, string>> = {
  '&&': '||',
  '||': '&&',
  '===': '!==',
  '!==': '===',
  '<': '<=',
  '<=': '<',
  '>': '>=',
  '>=': '>',
}
const words: Readonly<Record<string, string>> = { allow: 'deny', deny: 'allow' }
/** Longest part of the text that a change shows, in characters. */
const shownMaxChars = 70

/** All mutants of a TypeScript text, in its order. */
export function findMutants(text: string): Mutant[] {
  const found: Mutant[] = []
  const add = (node: Pick<Node, 'start' | 'end'>, replacement: string, verb?: string): void => {
    const before = text.slice(node.start, node.end).replace(/\s+/g, ' ')
    const shown = before.length > shownMaxChars ? `${before.slice(0, shownMaxChars)}…` : before
    const change = verb === undefined ? `${shown} -> ${replacement}` : `${verb} ${shown}`
    found.push({ ...node, replacement, line: text.slice(0, node.start).split('\n').length, change })
  }
  const place = ({ start, end }: Node): Pick<Node, 'start' | 'end'> => ({ start, end })
  const visit = (node: Node): void => {
    if (node.type === 'ImportDeclaration' || isTypeOnly(node)) return
    if (node.type === 'IfStatement' || node.type === 'ConditionalExpression') {
      const test = node.test as Node
      add(place(test), `!(${text.slice(test.start, test.end)})`, 'negates')
    }
    if (node.type === 'LogicalExpression' || node.type === 'BinaryExpression') {
      const [left, right] = [node.left as Node, node.right as Node]
      const swapped = operators[String(node.operator)]
      const at = text.indexOf(String(node.operator), left.end)
      if (swapped !== undefined && at !== -1 && at < right.start)
        add(
          { start: node.start, end: node.end },
          `${text.slice(node.start, at)}${swapped}${text.slice(at + String(node.operator).length, node.end)}`,
          `swaps ${String(node.operator)} for ${swapped} in`,
        )
    }
    if (node.type === 'ThrowStatement' || (node.type === 'ReturnStatement' && node.argument === null))
      add(place(node), ';', 'drops')
    if (node.type === 'ExpressionStatement' && typeof node.directive !== 'string')
      add(place(node), ';', 'drops')
    if (node.type === 'Literal') {
      const { value } = node
      if (typeof value === 'boolean') add(place(node), String(!value))
      if (typeof value === 'number') add(place(node), String(value + 1))
      if (typeof value === 'string' && words[value] !== undefined) add(place(node), `'${words[value]}'`)
    }
    for (const child of Object.values(node).flat()) if (isNode(child)) visit(child)
  }
  visit(parseAst(text, { lang: 'ts' }) as unknown as Node)
  return found
}

export function applyMutant(text: string, { start, end, replacement }: Mutant): string {
  return `${text.slice(0, start)}${replacement}${text.slice(end)}`
}

function isNode(value: unknown): value is Node {
  return typeof value === 'object' && value !== null && typeof (value as Node).type === 'string'
}

/** Types have no behavior. Casts wrap an expression that has one. */
function isTypeOnly({ type }: Node): boolean {
  return type.startsWith('TS') && !/^TS(?:As|NonNull|Satisfies)/.test(type)
}
