/**
 * Writes a tiny model file for llama-server: a state machine stored as weights. Each script is a chain of tokens, the chat
 * template starts one by a control token at the end of the prompt, and greedy decoding replays it. The server around it is real.
 * Format: GGUF version 3 (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md), architecture llama.
 */
import { readFileSync, writeFileSync } from 'node:fs'
import { scripts } from './scripts.ts'

const type = { u32: 4, i32: 5, f32: 6, bool: 7, string: 8, array: 9 } as const
type Value =
  | { u32: number }
  | { f32: number }
  | { bool: boolean }
  | { string: string }
  | { strings: readonly string[] }
  | { i32s: readonly number[] }

interface Tensor {
  readonly name: string
  readonly dims: readonly number[]
  readonly data: Float32Array
}

const embedding = 256
const feedForward = 256
const heads = 4
const alignment = 32

// ---- vocabulary: bytes as GPT-2 writes them, control tokens, a few merges so that the tokenizer merges, the scripts -----

const byteToChar = makeByteTable()
const tokens: string[] = []
const kinds: number[] = []
const idOf = new Map<string, number>()
const normalToken = 1
const controlToken = 3

function add(text: string, kind: number = normalToken): number {
  const known = idOf.get(text)
  if (known !== undefined) return known
  const id = tokens.length
  tokens.push(text)
  kinds.push(kind)
  idOf.set(text, id)
  return id
}

function makeByteTable(): string[] {
  const plain = (byte: number): boolean =>
    (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || (byte >= 174 && byte <= 255)
  let extra = 0
  return Array.from({ length: 256 }, (_, byte) => String.fromCodePoint(plain(byte) ? byte : 256 + extra++))
}

function encode(text: string): string {
  return [...Buffer.from(text, 'utf8')].map((byte) => byteToChar[byte] ?? '').join('')
}

/** The script split into unique tokens of the whole model. */
function cutScript(name: string, text: string): string[] {
  const pieces: string[] = []
  const isFresh = (piece: string): boolean =>
    !idOf.has(encode(piece)) && !pieces.includes(piece) && Buffer.byteLength(piece) > 1
  let piece = ''
  for (const bit of text.match(/\s*[A-Za-z0-9_]+|\s*[^A-Za-z0-9_\s]|\s+/gu) ?? []) {
    piece += bit
    if (!isFresh(piece)) continue
    pieces.push(piece)
    piece = ''
  }
  while (piece !== '') {
    const before = pieces.pop()
    if (before === undefined) throw new Error(`script ${name} has nothing of its own; make it longer`)
    piece = before + piece
    if (!isFresh(piece)) continue
    pieces.push(piece)
    piece = ''
  }
  return pieces
}

function buildChains(): { next: Map<number, number>; end: number; begin: number; merges: string[] } {
  for (const char of byteToChar) add(char)
  const end = add('<|im_end|>', controlToken)
  add('<|im_start|>', controlToken)
  const begin = add('<|endoftext|>', controlToken)
  const merges = ['t h', 'i n', 'e r', 'a n', 'r e', 'o n', 'th e', 'in g', 'an d']
  for (const merge of merges) add(merge.replace(' ', ''))
  const next = new Map<number, number>()
  for (const [name, text] of Object.entries(scripts)) {
    let last = add(`<|go_${name}|>`, controlToken)
    for (const piece of cutScript(name, text)) {
      const id = add(encode(piece))
      next.set(last, id)
      last = id
    }
    next.set(last, end)
  }
  return { next, end, begin, merges }
}

// ---- weights --------------------------------------------------------------------------------------------------

/** A small deterministic generator, so that the same scripts give the same file. */
function createRandom(seed: number): () => number {
  let state = seed
  return () => {
    state = (state + 0x6d2b79f5) | 0
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state)
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296
  }
}

function makeTensors(next: ReadonlyMap<number, number>): Tensor[] {
  const random = createRandom(7)
  const size = tokens.length * embedding
  const input = Float32Array.from({ length: size }, () => (random() < 0.5 ? -1 : 1))
  const output = new Float32Array(size)
  // The right token gets a logit of 64, any other about +-4: random signs are nearly orthogonal.
  for (const [from, to] of next) {
    for (let at = 0; at < embedding; at += 1) {
      output[to * embedding + at] =
        (output[to * embedding + at] ?? 0) + (input[from * embedding + at] ?? 0) * 0.25
    }
  }
  const ones = new Float32Array(embedding).fill(1)
  const square = new Float32Array(embedding * embedding)
  const wide = new Float32Array(embedding * feedForward)
  const layer = (name: string, dims: readonly number[], data: Float32Array): Tensor => ({
    name: `blk.0.${name}.weight`,
    dims,
    data,
  })
  return [
    { name: 'token_embd.weight', dims: [embedding, tokens.length], data: input },
    { name: 'output_norm.weight', dims: [embedding], data: ones },
    { name: 'output.weight', dims: [embedding, tokens.length], data: output },
    layer('attn_norm', [embedding], ones),
    layer('ffn_norm', [embedding], ones),
    ...['attn_q', 'attn_k', 'attn_v', 'attn_output'].map((name) =>
      layer(name, [embedding, embedding], square),
    ),
    layer('ffn_gate', [embedding, feedForward], wide),
    layer('ffn_up', [embedding, feedForward], wide),
    layer('ffn_down', [feedForward, embedding], wide),
  ]
}

// ---- file -----------------------------------------------------------------------------------------------------

function u32(value: number): Buffer {
  const bytes = Buffer.alloc(4)
  bytes.writeUInt32LE(value)
  return bytes
}

function u64(value: number): Buffer {
  const bytes = Buffer.alloc(8)
  bytes.writeBigUInt64LE(BigInt(value))
  return bytes
}

function text(value: string): Buffer {
  const bytes = Buffer.from(value, 'utf8')
  return Buffer.concat([u64(bytes.length), bytes])
}

function encodeValue(value: Value): Buffer {
  if ('u32' in value) return Buffer.concat([u32(type.u32), u32(value.u32)])
  if ('string' in value) return Buffer.concat([u32(type.string), text(value.string)])
  if ('bool' in value) return Buffer.concat([u32(type.bool), Buffer.of(value.bool ? 1 : 0)])
  if ('f32' in value) {
    const bytes = Buffer.alloc(4)
    bytes.writeFloatLE(value.f32)
    return Buffer.concat([u32(type.f32), bytes])
  }
  if ('strings' in value) {
    return Buffer.concat([
      u32(type.array),
      u32(type.string),
      u64(value.strings.length),
      ...value.strings.map(text),
    ])
  }
  return Buffer.concat([u32(type.array), u32(type.i32), u64(value.i32s.length), ...value.i32s.map(u32)])
}

function pad(length: number): Buffer {
  return Buffer.alloc((alignment - (length % alignment)) % alignment)
}

function encodeFile(facts: Readonly<Record<string, Value>>, tensors: readonly Tensor[]): Buffer {
  const names = Object.entries(facts)
  const parts = [Buffer.from('GGUF'), u32(3), u64(tensors.length), u64(names.length)]
  for (const [name, value] of names) parts.push(text(name), encodeValue(value))
  let offset = 0
  for (const { name, dims, data } of tensors) {
    parts.push(text(name), u32(dims.length), ...dims.map(u64), u32(0), u64(offset))
    offset += data.byteLength + pad(data.byteLength).length
  }
  parts.push(pad(Buffer.concat(parts).length))
  for (const { data } of tensors) {
    parts.push(Buffer.from(data.buffer, data.byteOffset, data.byteLength), pad(data.byteLength))
  }
  return Buffer.concat(parts)
}

/** Writes the model. @param path of the file to make */
export function makeModel(path: string): void {
  const { next, end, begin, merges } = buildChains()
  const template = readFileSync(new URL('./template.jinja', import.meta.url), 'utf8')
  const llama = (name: string): string => `llama.${name}`
  const facts: Record<string, Value> = {
    'general.architecture': { string: 'llama' },
    'general.type': { string: 'model' },
    'general.name': { string: 'caisson-scripted' },
    'general.file_type': { u32: 0 },
    [llama('vocab_size')]: { u32: tokens.length },
    [llama('context_length')]: { u32: 65_536 },
    [llama('embedding_length')]: { u32: embedding },
    [llama('block_count')]: { u32: 1 },
    [llama('feed_forward_length')]: { u32: feedForward },
    [llama('attention.head_count')]: { u32: heads },
    [llama('attention.head_count_kv')]: { u32: heads },
    [llama('attention.layer_norm_rms_epsilon')]: { f32: 1e-5 },
    [llama('rope.dimension_count')]: { u32: embedding / heads },
    [llama('rope.freq_base')]: { f32: 10_000 },
    'tokenizer.ggml.model': { string: 'gpt2' },
    'tokenizer.ggml.pre': { string: 'gpt-2' },
    'tokenizer.ggml.tokens': { strings: tokens },
    'tokenizer.ggml.token_type': { i32s: kinds },
    'tokenizer.ggml.merges': { strings: merges },
    'tokenizer.ggml.bos_token_id': { u32: begin },
    'tokenizer.ggml.eos_token_id': { u32: end },
    'tokenizer.ggml.add_bos_token': { bool: false },
    'tokenizer.chat_template': { string: template },
  }
  writeFileSync(path, encodeFile(facts, makeTensors(next)))
}
