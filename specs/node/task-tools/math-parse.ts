/**
 * Parses and evaluates an arithmetic expression. Accepts only numbers, operators, brackets, and names from two short
 * lists; looks nothing up in objects and runs no code.
 */
import {
  add,
  divide,
  MathError,
  type MathValue,
  mathConstants,
  mathFunctions,
  multiply,
  negate,
  parseNumber,
  power,
  remainder,
  subtract,
} from './math-values.ts'

/** Maximum nesting of brackets, signs and exponents. */
const maxDepth = 100
/** Whole numbers from here on are expensive to compute. */
const large = 10n ** 300n
/** Maximum number of such powers; a root counts as several. */
const maxWeight = 100
const rootWeight = 8

/** @throws {MathError} with the position */
export function evaluateMath(expression: string): MathValue {
  return new Reader(expression).read()
}

interface Token {
  readonly kind: 'number' | 'name' | 'sign' | 'end'
  readonly text: string
  /** From 1. */
  readonly at: number
}

const tokenPattern =
  /(?<number>(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)|(?<name>[A-Za-z_]\w*)|(?<sign>\*\*|[-+*/%^(),])/y

class Reader {
  readonly #text: string
  #position = 0
  #token: Token
  #depth = 0
  #weight = 0

  constructor(text: string) {
    this.#text = text
    this.#token = this.#scan()
  }

  read(): MathValue {
    const value = this.#sum()
    if (this.#token.kind !== 'end') throw this.#unexpected('an operator')
    return value
  }

  #sum(): MathValue {
    let value = this.#product()
    for (;;) {
      if (this.#take('+')) value = add(value, this.#product())
      else if (this.#take('-')) value = subtract(value, this.#product())
      else return value
    }
  }

  #product(): MathValue {
    let value = this.#signed()
    for (;;) {
      if (this.#take('*')) value = multiply(value, this.#signed())
      else if (this.#take('/')) value = divide(value, this.#signed())
      else if (this.#take('%')) value = remainder(value, this.#signed())
      else return value
    }
  }

  /** A sign binds weaker than a power: -2**2 is -4. */
  #signed(): MathValue {
    return this.#deeper(() => {
      if (this.#take('-')) return negate(this.#signed())
      if (this.#take('+')) return this.#signed()
      const base = this.#single()
      if (!this.#take('**') && !this.#take('^')) return base
      const value = power(base, this.#signed())
      this.#weigh(value, 1)
      return value
    })
  }

  /** All expensive work begins with a power or a root: few digits become thousands. */
  #weigh(value: MathValue, weight: number): void {
    if (typeof value !== 'bigint' || (value < large && value > -large)) return
    this.#weight += weight
    if (this.#weight > maxWeight)
      throw new MathError(
        `it has more than ${maxWeight} powers and roots of hundreds of digits; use run_python for it`,
      )
  }

  #single(): MathValue {
    const token = this.#token
    if (token.kind === 'number') {
      this.#advance()
      return parseNumber(token.text)
    }
    if (token.kind === 'name') return this.#named(token)
    if (!this.#take('(')) throw this.#unexpected('a number, a name or "("')
    const value = this.#sum()
    this.#expectClose(token)
    return value
  }

  #named({ text, at }: Token): MathValue {
    const name = text.toLowerCase()
    const constant = mathConstants.get(name)
    const called = mathFunctions.get(name)
    if (constant === undefined && called === undefined) {
      const known = [...mathFunctions.keys(), ...mathConstants.keys()].join(', ')
      throw new MathError(`at ${at} stands ${JSON.stringify(text.slice(0, 40))}, and the names are ${known}`)
    }
    this.#advance()
    if (called === undefined) return constant ?? 0
    const open = this.#token
    if (!this.#take('(')) throw this.#unexpected(`"(" behind ${name}`)
    const values: MathValue[] = []
    do values.push(this.#sum())
    while (this.#take(','))
    this.#expectClose(open)
    if (values.length < called.least || values.length > called.most) {
      const wanted = called.least === called.most ? `${called.least}` : `${called.least} to ${called.most}`
      throw new MathError(`${name} takes ${wanted} numbers and has ${values.length}`)
    }
    if (name === 'sqrt') this.#weigh(values[0] ?? 0, rootWeight)
    return called.apply(...values)
  }

  #expectClose(open: Token): void {
    if (!this.#take(')')) throw this.#unexpected(`")" for the "(" at ${open.at}`)
  }

  #deeper(work: () => MathValue): MathValue {
    if (++this.#depth > maxDepth) throw new MathError(`it goes more than ${maxDepth} levels deep`)
    const value = work()
    this.#depth--
    return value
  }

  #take(sign: string): boolean {
    if (this.#token.kind !== 'sign' || this.#token.text !== sign) return false
    this.#advance()
    return true
  }

  #advance(): void {
    this.#token = this.#scan()
  }

  #scan(): Token {
    while (/[ \t\r\n]/.test(this.#text[this.#position] ?? '')) this.#position++
    const at = this.#position + 1
    if (this.#position >= this.#text.length) return { kind: 'end', text: '', at }
    tokenPattern.lastIndex = this.#position
    const groups = tokenPattern.exec(this.#text)?.groups
    const kind = (['number', 'name', 'sign'] as const).find((each) => groups?.[each] !== undefined)
    const text = kind === undefined ? undefined : groups?.[kind]
    if (kind === undefined || text === undefined) {
      const point = this.#text.codePointAt(this.#position) ?? 0
      throw new MathError(
        `at ${at} stands ${JSON.stringify(String.fromCodePoint(point))} (U+${point.toString(16).toUpperCase().padStart(4, '0')}), which is no part of an expression`,
      )
    }
    this.#position += text.length
    return { kind, text, at }
  }

  #unexpected(wanted: string): MathError {
    const { kind, text, at } = this.#token
    const seen =
      kind === 'end' ? 'the expression ends' : `at ${at} stands ${JSON.stringify(text.slice(0, 40))}`
    return new MathError(`${seen}, where ${wanted} is expected`)
  }
}
