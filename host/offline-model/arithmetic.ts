/** Plain arithmetic: from words of people to an expression of Python, and back for people. */

const number = String.raw`\d+(?:,\d{3})*(?:\.\d+)?|\.\d+`

/**
 * The expression in Python's notation, or null when the text is not plain arithmetic.
 * Allowed in the result: numbers, + - * / % ** ( ) , and the functions sqrt, mean, total, product.
 */
export function readArithmetic(text: string): string | null {
  let rest = text
    .toLowerCase()
    .trim()
    .replace(/[=?\s]+$/, '')
  const list = /^(?:the )?(sum|total|average|mean|product) of (.+)$/.exec(rest)
  if (list !== null) {
    const items = (list[2] ?? '')
      .split(/\s*(?:,\s+and\s+|,\s*and\s+|\s+and\s+|,\s+|\s+)\s*/)
      .filter((item) => item !== '')
    const name = { sum: 'total', total: 'total', average: 'mean', mean: 'mean', product: 'product' }[
      list[1] ?? ''
    ]
    const plain = items.map((item) => readArithmetic(item))
    return items.length > 1 && plain.every((item) => item !== null) ? `${name}(${plain.join(', ')})` : null
  }
  rest = rest
    .replaceAll(new RegExp(`(${number})\\s*(?:%|percent)\\s+of\\s+`, 'g'), '($1 / 100) * ')
    .replaceAll(new RegExp(`(${number})\\s*(?:%|percent)\\s+off\\s+(?:of\\s+)?`, 'g'), '(1 - $1 / 100) * ')
    .replaceAll(/(?:the )?square root of\s+(\d+(?:\.\d+)?|\([^()]*\))/g, 'sqrt($1)')
    .replaceAll(/\b(?:divided by|over)\b|÷|:/g, '/')
    .replaceAll(/\b(?:multiplied by|times)\b|[×·]/g, '*')
    .replaceAll(/(?<=[\d)\s])x(?=[\s\d(])/g, '*')
    .replaceAll(/\bplus\b/g, '+')
    .replaceAll(/\b(?:minus|less)\b|−/g, '-')
    .replaceAll(/\b(?:to the power of|raised to)\b|\^/g, '**')
    .replaceAll(/\bsquared\b/g, '** 2')
    .replaceAll(/\bcubed\b/g, '** 3')
    .replaceAll(/\bmod(?:ulo)?\b/g, '%')
    .replaceAll(/(?<=\d),(?=\d{3}(?!\d))/g, '')
    .replaceAll(/\s+/g, ' ')
  const tokens = rest.match(/\d+(?:\.\d+)?|\.\d+|sqrt|\*\*|[-+*/%()]|\S/g) ?? []
  const known = tokens.every((token) => /^(?:\d+(?:\.\d+)?|\.\d+|sqrt|\*\*|[-+*/%()])$/.test(token))
  if (!known || tokens.length > 200 || !isWellFormed(tokens)) return null
  return tokens.join(' ').replaceAll('sqrt (', 'sqrt(')
}

/** Whether the tokens are a Python expression: brackets are reduced to numbers, from the inside out. */
function isWellFormed(tokens: readonly string[]): boolean {
  let shape = tokens
    .map((token) => (/\d/.test(token) ? 'n' : token === 'sqrt' ? 'f' : /^[-+]$/.test(token) ? 's' : token))
    .map((token) => (/^[*/%]/.test(token) ? 'o' : token))
    .join('')
  for (let last = ''; last !== shape; ) {
    last = shape
    shape = shape.replaceAll(/f?\(s*n(?:[os]s*n)*\)/g, 'n')
  }
  return /^s*n(?:[os]s*n)*$/.test(shape)
}

/** As people write it. @param expression a result of `readArithmetic` */
export function showArithmetic(expression: string): string {
  return expression
    .replaceAll(/\( 1 - (\S+) \/ 100 \) \* /g, '$1% off ')
    .replaceAll(/\( (\S+) \/ 100 \) \* /g, '$1% of ')
    .replaceAll(/(?<=\() | (?=\))/g, '')
    .replaceAll(/\(\(([^()]*)\)\)/g, '($1)')
    .replaceAll(' ** ', '^')
    .replaceAll(/(^|[(+*/%-] )- (?=[\d(])/g, '$1-')
    .replaceAll(/(?<![\d.])\d{5,}/g, (digits) => digits.replaceAll(/\B(?=(\d{3})+$)/g, ','))
}
