import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { MachineStream, MachineStreamError } from '../../../vm/hibernation/machine-stream.ts'

const PAGE = 4096
const MEMORY = 8 * PAGE
const BLOCKS: Readonly<Record<string, number>> = { ram: MEMORY, 'pc.bios': 2 * PAGE }

interface Page {
  readonly block: string
  readonly number: number
  /** The byte that fills it; 0 goes without its content. */
  readonly fill: number
}

function number32(value: number): Buffer {
  const bytes = Buffer.alloc(4)
  bytes.writeUInt32BE(value)
  return bytes
}

function number64(value: number): Buffer {
  return Buffer.concat([number32(Math.floor(value / 2 ** 32)), number32(value % 2 ** 32)])
}

function name(text: string): Buffer {
  return Buffer.concat([Buffer.of(text.length), Buffer.from(text, 'latin1')])
}

function head(machine = 'pc-q35-7.2'): Buffer {
  return Buffer.concat([
    ...[number32(0x5145564d), number32(3), Buffer.of(7), number32(machine.length), Buffer.from(machine)],
    ...[Buffer.of(1), number32(2), name('ram'), number32(0), number32(4)],
  ])
}

function sizes(blocks = BLOCKS): Buffer {
  const total = Object.values(blocks).reduce((sum, length) => sum + length, 0)
  const each = Object.entries(blocks).map(([block, length]) => Buffer.concat([name(block), number64(length)]))
  return Buffer.concat([number64(total + 4), ...each, number64(0x10), footer()])
}

function footer(): Buffer {
  return Buffer.concat([Buffer.of(0x7e), number32(2)])
}

function part(type: number, records: readonly Buffer[]): Buffer {
  return Buffer.concat([Buffer.of(type), number32(2), ...records, number64(0x10), footer()])
}

/** As QEMU does it: a page names its block where the one before was of another. */
function pages(list: readonly Page[]): Buffer[] {
  return list.map(({ block, number, fill }, index) => {
    const isSame = list[index - 1]?.block === block
    const address = number64(number * PAGE + (isSame ? 0x20 : 0) + (fill === 0 ? 2 : 8))
    return Buffer.concat([
      address,
      isSame ? Buffer.alloc(0) : name(block),
      fill === 0 ? Buffer.of(0) : Buffer.alloc(PAGE, fill),
    ])
  })
}

const DEVICES = Buffer.from('whatever the devices said')

function stream(list: readonly Page[]): Buffer {
  const half = Math.floor(list.length / 2)
  return Buffer.concat([
    ...[head(), sizes(), part(2, pages(list.slice(0, half))), part(3, pages(list.slice(half))), DEVICES],
  ])
}

/** What comes of the chunks: the memory as it would be in its file, and the stream without it. */
function take(chunks: readonly Buffer[]) {
  const memory = Buffer.alloc(MEMORY)
  const rest: Buffer[] = []
  const machine = new MachineStream(MEMORY)
  for (const chunk of chunks) {
    const taken = machine.push(chunk)
    for (const run of taken.memory) {
      const bytes = Buffer.concat(run.bytes)
      expect(bytes.length).toBe(run.length)
      expect(run.at + run.length).toBeLessThanOrEqual(MEMORY)
      bytes.copy(memory, run.at)
    }
    rest.push(...taken.rest)
  }
  return { memory, rest: Buffer.concat(rest), isWhole: machine.isWhole }
}

function cut(bytes: Buffer, places: readonly number[]): Buffer[] {
  const at = [0, ...places.map((place) => place % bytes.length).sort((a, b) => a - b), bytes.length]
  return at.slice(1).map((end, index) => bytes.subarray(at[index], end))
}

const somePages = fc.array(
  fc.oneof(
    fc.record({ block: fc.constant('ram'), number: fc.nat(7), fill: fc.nat(255) }),
    fc.record({ block: fc.constant('pc.bios'), number: fc.nat(1), fill: fc.nat(255) }),
  ),
  { maxLength: 20 },
)
const somePlaces = fc.array(fc.nat(100_000), { maxLength: 30 })

describe('the stream of a saved machine', () => {
  it('gives the memory, the last of each page, and a stream without it, however it is cut [V.04]', () => {
    fc.assert(
      fc.property(somePages, somePlaces, (list, places) => {
        const { memory, rest, isWhole } = take(cut(stream(list), places))
        expect(isWhole).toBe(true)
        const expected = Buffer.alloc(MEMORY)
        for (const { block, number, fill } of list) {
          if (block === 'ram') expected.fill(fill, number * PAGE, (number + 1) * PAGE)
        }
        expect(memory.equals(expected)).toBe(true)
        const half = Math.floor(list.length / 2)
        const isOther = (_: Buffer, at: number, half: readonly Page[]) => half[at]?.block !== 'ram'
        const kept = (some: readonly Page[]) => pages(some).filter((bytes, at) => isOther(bytes, at, some))
        const without = Buffer.concat([
          ...[head(), sizes(), part(2, kept(list.slice(0, half))), part(3, kept(list.slice(half))), DEVICES],
        ])
        expect(rest.equals(without)).toBe(true)
      }),
      { seed: 1, numRuns: 300 },
    )
  })

  it('is refused, or fills the memory alone, whatever a QEMU sends [V.04]', () => {
    const change = fc.record({ at: fc.nat(100_000), value: fc.nat(255) })
    fc.assert(
      fc.property(
        fc.oneof(
          fc.uint8Array({ maxLength: 200 }).map((bytes) => Buffer.from(bytes)),
          fc.tuple(somePages, fc.array(change, { minLength: 1, maxLength: 5 })).map(([list, changes]) => {
            const bytes = stream(list)
            for (const { at, value } of changes) bytes[at % bytes.length] = value
            return bytes
          }),
        ),
        somePlaces,
        (bytes, places) => {
          try {
            take(bytes.length === 0 ? [] : cut(bytes, places))
          } catch (error) {
            expect(error).toBeInstanceOf(MachineStreamError)
          }
        },
      ),
      { seed: 2, numRuns: 500 },
    )
  })

  const one: readonly Page[] = [{ block: 'ram', number: 1, fill: 7 }]
  it.each([
    ['of another kind', Buffer.from('{"QMP": a monitor}'), 'magic'],
    [
      'with a part before the memory',
      Buffer.concat([head().subarray(0, 23), Buffer.of(5), Buffer.alloc(20)]),
      'part',
    ],
    [
      'that packs its pages',
      Buffer.concat([head(), number64(0x100), name('ram'), Buffer.of(1)]),
      'kind of page',
    ],
    ['of another length', Buffer.concat([head(), sizes({ ram: 2 * MEMORY })]), 'length of the memory'],
    ['without a memory', Buffer.concat([head(), sizes({ 'pc.bios': PAGE }), part(3, [])]), 'no memory'],
    [
      'with a page beyond the memory',
      Buffer.concat([head(), sizes(), part(3, pages([{ block: 'ram', number: 8, fill: 1 }]))]),
      'beyond the memory',
    ],
    [
      'with devices without end',
      Buffer.concat([stream(one), Buffer.alloc(64 * 1024 * 1024)]),
      'too much state',
    ],
  ])('is refused when it is one %s [V.04]', (_, bytes, why) => {
    expect(() => take([bytes])).toThrow(MachineStreamError)
    expect(() => take([bytes])).toThrow(why)
  })

  it('is not whole before the end of the memory [V.04]', () => {
    const whole = stream(one)
    const end = whole.length - DEVICES.length
    expect(take([whole.subarray(0, end - 1)]).isWhole).toBe(false)
    expect(take([whole.subarray(0, end)]).isWhole).toBe(true)
  })
})
