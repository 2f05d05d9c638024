/**
 * Finds reasoning in a text whose server did not remove it: one table of marks per model family. Reasoning never
 * runs. Text before the last end mark is reasoning too, since many templates write the opening mark themselves.
 */

/** The reasoning marks of a family, as patterns. */
interface ThoughtMarks {
  /** Models that use the marks, for people. */
  readonly family: string
  readonly open: string
  readonly close: string
  /** Whether an end mark counts only after a start mark of the same family. */
  readonly paired?: boolean
}

/** In any case; the modifier `(?i:)` needs Node 23. */
const tag = `(?:${'think|thinking|thought|thoughts|reasoning|reflection|scratchpad|inner_monologue|seed:think|mm:think'.replaceAll(/[a-z]/g, (letter) => `[${letter}${letter.toUpperCase()}]`)})`

const families: readonly ThoughtMarks[] = [
  // deepseek, qwen, nemotron, glm, exaone, reka; with a namespace: seed-oss, minimax; what prompts ask for
  { family: 'tags', open: `<${tag}(?:\\s[^<>]{0,100})?>`, close: `</${tag}\\s{0,4}>` },
  { family: 'mistral', open: '\\[THINK\\]', close: '\\[/THINK\\]' },
  {
    family: 'gpt-oss',
    open: '<\\|channel\\|>analysis(?:[^<]{0,100}<\\|message\\|>)?',
    // The table of calls reads a call in the commentary; other commentary is for the person.
    close:
      '(?:<\\|end\\|>\\s{0,4})?<\\|start\\|>assistant(?=<\\|channel\\|>commentary to=| to=)|(?:<\\|end\\|>\\s{0,4})?(?:<\\|start\\|>assistant)?<\\|channel\\|>(?:final|commentary)(?! to=)[^<]{0,100}(?:<\\|constrain\\|>[^<]{0,100})?<\\|message\\|>',
  },
  // The same without the special tokens.
  {
    family: 'gpt-oss, bare',
    open: '^analysis(?=[A-Z][\\s\\S]*assistantfinal)',
    close: 'assistantfinal',
    paired: true,
  },
  { family: 'kimi', open: '◁think▷', close: '◁/think▷' },
  { family: 'deepseek', open: '<[｜|]begin▁of▁thinking[｜|]>', close: '<[｜|]end▁of▁thinking[｜|]>' },
  { family: 'cohere', open: '<\\|START_THINKING\\|>', close: '<\\|END_THINKING\\|>' },
  { family: 'gemma', open: '<\\|channel>(?:thought|analysis)\\n?', close: '<channel\\|>' },
  { family: 'apertus', open: '<\\|inner_prefix\\|>', close: '<\\|inner_suffix\\|>' },
  { family: 'openthinker', open: '<\\|begin_of_thought\\|>', close: '<\\|end_of_thought\\|>' },
]

const anyMark = new RegExp(
  families.map(({ open, close }, index) => `(?<o${index}>${open})|(?<c${index}>${close})`).join('|'),
  'g',
)

export interface ThoughtMark {
  readonly kind: 'open' | 'close'
  readonly at: number
  readonly end: number
}

/** All reasoning marks in `text`, in order, including quoted ones; in linear time. */
export function findThoughtMarks(text: string): ThoughtMark[] {
  const marks: ThoughtMark[] = []
  const opened = new Set<number>()
  for (const { 0: found, index: at, groups = {} } of text.matchAll(anyMark)) {
    const group = Object.keys(groups).find((name) => groups[name] !== undefined) ?? ''
    const family = Number(group.slice(1))
    const isOpen = group.startsWith('o')
    if (isOpen) opened.add(family)
    else if (families[family]?.paired === true && !opened.has(family)) continue
    marks.push({ kind: isOpen ? 'open' : 'close', at, end: at + found.length })
  }
  return marks
}

/** Reasoning without its marks. */
export function withoutMarks(thought: string): string {
  return thought.replaceAll(anyMark, '')
}
