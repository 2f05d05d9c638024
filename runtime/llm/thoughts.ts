/**
 * Where a model's thoughts begin and end in a text whose server did not take them out: one table of the marks that the
 * families of models write. A thought is never carried out; what stands before the last end of one is thought too, because
 * many templates write the opening mark themselves.
 */

/** How a family marks its thoughts, as patterns. */
interface ThoughtMarks {
  /** Who writes so, for people. */
  readonly family: string
  readonly open: string
  readonly close: string
  /** Whether an end means something only behind a beginning of the same family. */
  readonly paired?: boolean
}

const tag =
  '(?i:think|thinking|thought|thoughts|reasoning|reflection|scratchpad|inner_monologue|seed:think|mm:think)'

const families: readonly ThoughtMarks[] = [
  // deepseek, qwen, nemotron, glm, exaone, reka; with a namespace: seed-oss, minimax; what prompts ask for
  { family: 'tags', open: `<${tag}(?:\\s[^<>]{0,100})?>`, close: `</${tag}\\s{0,4}>` },
  { family: 'mistral', open: '\\[THINK\\]', close: '\\[/THINK\\]' },
  {
    family: 'gpt-oss',
    open: '<\\|channel\\|>analysis(?:[^<]{0,100}<\\|message\\|>)?',
    // A call in the commentary is read by the table of calls; everything else there is said to the person.
    close:
      '(?:<\\|end\\|>\\s{0,4})?<\\|start\\|>assistant(?=<\\|channel\\|>commentary to=| to=)|(?:<\\|end\\|>\\s{0,4})?(?:<\\|start\\|>assistant)?<\\|channel\\|>(?:final|commentary)(?! to=)[^<]{0,100}(?:<\\|constrain\\|>[^<]{0,100})?<\\|message\\|>',
  },
  // The same where the server left the special tokens out.
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

/** All marks of thoughts in `text`, in order, quoted ones included; in time linear in its length. */
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

/** A thought without its marks. */
export function withoutMarks(thought: string): string {
  return thought.replaceAll(anyMark, '')
}
