/**
 * Arithmetic of `math`: exact whole numbers up to a number of digits, doubles otherwise. A result without a
 * representable value throws a {@link MathError}; it never becomes a special number.
 */

/** A whole number or a finite double. */
export type MathValue = bigint | number

/** Why there is no value; the message is for the model. */
export class MathError extends Error {
  override readonly name = 'MathError'
}

/** Maximum decimal digits of a whole number. */
export const maxDigits = 10_000
/** Maximum bits of that many digits. */
const maxBits = Math.ceil(maxDigits * Math.log2(10))
/** The first number with more digits; computed on first use. */
let beyond: bigint | undefined

export function add(a: MathValue, b: MathValue): MathValue {
  return isWhole(a) && isWhole(b) ? bounded(a + b) : finite(toDouble(a) + toDouble(b))
}

export function subtract(a: MathValue, b: MathValue): MathValue {
  return isWhole(a) && isWhole(b) ? bounded(a - b) : finite(toDouble(a) - toDouble(b))
}

export function multiply(a: MathValue, b: MathValue): MathValue {
  return isWhole(a) && isWhole(b) ? bounded(a * b) : finite(toDouble(a) * toDouble(b))
}

/** Exact when it divides evenly. */
export function divide(a: MathValue, b: MathValue): MathValue {
  if (isZero(b)) throw new MathError('division by zero')
  if (!isWhole(a) || !isWhole(b)) return finite(toDouble(a) / toDouble(b))
  return a % b === 0n ? a / b : finite(ratio(a, b))
}

/** The remainder, with the sign of the left side. */
export function remainder(a: MathValue, b: MathValue): MathValue {
  if (isZero(b)) throw new MathError('division by zero')
  return isWhole(a) && isWhole(b) ? a % b : finite(toDouble(a) % toDouble(b))
}

export function power(base: MathValue, exponent: MathValue): MathValue {
  if (isZero(base) && exponent < 0) throw new MathError('division by zero')
  if (!isWhole(base) || !isWhole(exponent) || exponent < 0n)
    return finite(toDouble(base) ** toDouble(exponent))
  if (base === 0n || base === 1n) return exponent === 0n ? 1n : base
  if (base === -1n) return exponent % 2n === 0n ? 1n : -1n
  // Checked first: 9**9**9 has more digits than fit in memory.
  const bits = BigInt(bitLength(base) - 1)
  if (bits * exponent > BigInt(maxBits)) throw tooLarge()
  return bounded(base ** exponent)
}

export function negate(value: MathValue): MathValue {
  return -value
}

/** Decimal form: whole numbers exactly, doubles with the shortest unambiguous digits. */
export function formatValue(value: MathValue): string {
  return value === 0 ? '0' : String(value)
}

/** A whole number, or a double from a decimal. */
export function parseNumber(text: string): MathValue {
  if (/^\d+$/.test(text)) return bounded(BigInt(text))
  const value = finite(Number(text))
  if (value === 0 && /[1-9]/.test(text.replace(/e.*/i, '')))
    throw new MathError(`${text} is too small for a decimal`)
  return value
}

type MathFunction = (...values: readonly MathValue[]) => MathValue

interface FunctionEntry {
  readonly least: number
  readonly most: number
  readonly apply: MathFunction
}

const one = (apply: (value: MathValue) => MathValue): FunctionEntry => ({
  least: 1,
  most: 1,
  apply: (value = 0n) => apply(value),
})
const some = (isBetter: (a: MathValue, b: MathValue) => boolean): FunctionEntry => ({
  least: 1,
  most: Number.POSITIVE_INFINITY,
  apply: (...values) => values.reduce((a, b) => (isBetter(b, a) ? b : a)),
})

/** By name; a map, so that no name reaches anything else. */
export const mathFunctions: ReadonlyMap<string, FunctionEntry> = new Map([
  ['abs', one((value) => (value < 0 ? negate(value) : value))],
  ['ceil', one((value) => whole(value, Math.ceil))],
  ['cos', one((value) => Math.cos(toDouble(value)))],
  ['exp', one((value) => finite(Math.exp(toDouble(value))))],
  ['floor', one((value) => whole(value, Math.floor))],
  ['ln', one((value) => Math.log(positive(value)))],
  ['log', { least: 1, most: 2, apply: logarithm }],
  ['max', some((a, b) => a > b)],
  ['min', some((a, b) => a < b)],
  ['round', { least: 1, most: 2, apply: round }],
  ['sin', one((value) => Math.sin(toDouble(value)))],
  ['sqrt', one(squareRoot)],
  ['tan', one((value) => Math.tan(toDouble(value)))],
])

export const mathConstants: ReadonlyMap<string, number> = new Map([
  ['e', Math.E],
  ['pi', Math.PI],
])

function logarithm(value: MathValue = 1n, base: MathValue = 10n): MathValue {
  const number = positive(value)
  if (base === 10n) return Math.log10(number)
  if (base === 2n) return Math.log2(number)
  const logOfBase = Math.log(positive(base))
  if (logOfBase === 0) throw new MathError('there is no logarithm to base 1')
  return finite(Math.log(number) / logOfBase)
}

/** Rounds halves away from zero. */
function round(value: MathValue = 0n, digits?: MathValue): MathValue {
  const places = digits === undefined ? 0 : Number(digits)
  if (!Number.isInteger(places) || places < 0 || places > 15)
    throw new MathError('round takes 0 to 15 places behind the point')
  if (isWhole(value)) return value
  if (digits !== undefined && places > 0)
    return Math.abs(value) < 1e21 ? Number(value.toFixed(places)) : value
  return whole(value, (number) => Math.sign(number) * Math.round(Math.abs(number)))
}

/** Exact for squares of whole numbers. */
function squareRoot(value: MathValue): MathValue {
  if (value < 0) throw new MathError('a negative number has no real square root')
  if (!isWhole(value)) return Math.sqrt(value)
  const root = wholeRoot(value)
  return root * root === value ? root : Math.sqrt(toDouble(value))
}

/** Integer square root by Newton's method, from above. */
function wholeRoot(value: bigint): bigint {
  if (value < 2n) return value
  let root = 1n << BigInt(Math.ceil(bitLength(value) / 2))
  for (;;) {
    const next = (root + value / root) >> 1n
    if (next >= root) return root
    root = next
  }
}

/** Rounding a double is exact as long as doubles represent whole numbers. */
function whole(value: MathValue, toWhole: (value: number) => number): MathValue {
  if (isWhole(value)) return value
  const made = toWhole(value)
  return Number.isSafeInteger(made) ? BigInt(made) : made
}

/** An inexact quotient, also of numbers too large for doubles. */
function ratio(a: bigint, b: bigint): number {
  // Enough bits that truncation happens below a double's last bit.
  const shift = Math.max(0, 80 - (bitLength(a) - bitLength(b)))
  const scaled = Number((a << BigInt(shift)) / b)
  const half = Math.floor(shift / 2)
  return scaled / 2 ** half / 2 ** (shift - half)
}

function isWhole(value: MathValue): value is bigint {
  return typeof value === 'bigint'
}

function isZero(value: MathValue): boolean {
  return value === 0n || value === 0
}

function positive(value: MathValue): number {
  if (value <= 0) throw new MathError('only numbers above zero have a logarithm')
  return toDouble(value)
}

function toDouble(value: MathValue): number {
  const double = Number(value)
  if (!Number.isFinite(double))
    throw new MathError('a whole number is too large to be reckoned with as a decimal')
  return double
}

function finite(value: number): number {
  if (Number.isNaN(value)) throw new MathError('that is no real number')
  if (!Number.isFinite(value)) throw new MathError('the result is too large for a decimal (about 1.8e308)')
  return value
}

function bounded(value: bigint): bigint {
  beyond ??= 10n ** BigInt(maxDigits)
  if (value >= beyond || value <= -beyond) throw tooLarge()
  return value
}

function bitLength(value: bigint): number {
  const hex = (value < 0n ? -value : value).toString(16)
  return hex.length * 4 - Math.clz32(Number.parseInt(hex[0] ?? '0', 16)) + 28
}

function tooLarge(): MathError {
  return new MathError(`a whole number has more than ${maxDigits} digits`)
}
