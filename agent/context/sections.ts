/**
 * The sections of a request's user message; each renders itself within a number of characters. Sections of the run
 * come first and are identical in all its requests; sections of a step follow. New content is a new section in the
 * list.
 */

import { block, oneLine } from '#specs/node/prompt-block.ts'
import type { ShownSection } from '#specs/protocol/context-section.ts'
import type { MemoryNote } from '#specs/protocol/extension.ts'
import { describeImage } from '#specs/protocol/image.ts'
import type { Plan, Step, StepState } from '#specs/protocol/plan.ts'
import type { Task } from '#specs/protocol/task.ts'
import type { TaskImage } from '../run/run.ts'
import type { SteerMessage } from '../run/steering.ts'
import { truncateMiddle } from '../text/truncate.ts'
import type { KnownSkill } from '../tool-calls/tool.ts'
import { attribute, inert, sectionsAt } from './given-sections.ts'

/** A plan step and the results it depends on. */
export interface StepWork {
  readonly plan: Plan
  readonly step: Step
  /** Answers of the steps that this one needs, in plan order. */
  readonly results: readonly { readonly stepId: string; readonly text: string }[]
  /** State of each plan step; absent: not shown. */
  readonly states?: ReadonlyMap<string, StepState>
}

/** Everything that sections can render. */
export interface ContextInput {
  readonly task: Task
  /** Images of the task; absent: none. */
  readonly images?: readonly TaskImage[]
  readonly workspaceListing: string
  /** Text of the workspace's AGENTS.md; absent: none. */
  readonly guidance?: string | undefined
  /** Skills that can be loaded; absent: none. */
  readonly skills?: readonly KnownSkill[] | undefined
  /** Absent while a plan is made. */
  readonly work?: StepWork
  /** Messages from the person during the run that the agent has seen. */
  readonly messages?: readonly SteerMessage[]
}

export interface ContextSection {
  readonly name: string
  /** `run`: identical bytes in all requests of a run. `step`: specific to one step. */
  readonly part: 'run' | 'step'
  /** Whether the section is never cut. */
  readonly pinned: boolean
  /** Renders the section in about `maxChars` characters; undefined when it is empty. */
  render(input: ContextInput, maxChars: number): string | undefined
  /** Says whose it is and how much of it {@link ContextSection.render} shows. Absent: the agent's own section. */
  describe?(input: ContextInput, maxChars: number): ShownSection
}

const task: ContextSection = {
  name: 'task',
  part: 'run',
  pinned: true,
  render: (input) => `# Task\n${block('task', input.task.prompt)}`,
}

const images: ContextSection = {
  name: 'images',
  part: 'run',
  pinned: true,
  render: (input) => {
    if (input.images === undefined || input.images.length === 0) return undefined
    const lines = input.images.map((one) =>
      'problem' in one
        ? `- ${one.name}: cannot be shown: ${one.problem}`
        : `- ${one.name}: ${describeImage(one.image)}`,
    )
    return `# Images of the task\nFiles of the workspace, shown behind this text in this order:\n${lines.join('\n')}`
  },
}

const facts: ContextSection = {
  name: 'context',
  part: 'run',
  pinned: false,
  render: (input, maxChars) => {
    const entries = Object.entries(input.task.context ?? {}).toSorted(([a], [b]) => (a < b ? -1 : 1))
    if (entries.length === 0) return undefined
    const texts = fitAll(
      entries.map(([, text]) => text),
      maxChars,
    )
    const blocks = entries.map(([name], index) =>
      block('context', inert(texts[index] ?? ''), ` name=${attribute(name)}`),
    )
    return `# Context\n${blocks.join('\n')}`
  },
}

const workspace: ContextSection = {
  name: 'workspace',
  part: 'run',
  pinned: false,
  render: (input, maxChars) =>
    `# Workspace\n${block('workspace', truncateMiddle(input.workspaceListing, maxChars))}`,
}

const guidance: ContextSection = {
  name: 'guidance',
  part: 'run',
  pinned: false,
  render: (input, maxChars) =>
    input.guidance === undefined
      ? undefined
      : `# AGENTS.md of the workspace\n${block('guidance', truncateMiddle(input.guidance, maxChars))}`,
}

const skills: ContextSection = {
  name: 'skills',
  part: 'run',
  pinned: false,
  render: (input, maxChars) => describeSkills(input.skills ?? [], maxChars),
}

const memory: ContextSection = {
  name: 'memory',
  part: 'run',
  pinned: false,
  render: ({ task: { memory: notes = [] } }, maxChars) => {
    // Keep the newest notes whole: half a note may say the opposite.
    let shown = 0
    for (let chars = 0; shown < notes.length; shown++) {
      chars += (notes[shown]?.text.length ?? 0) + 100
      if (chars > maxChars) break
    }
    if (shown === 0) return undefined
    const rest = notes.length - shown
    const more = rest === 0 ? '' : `\n(${rest} more: recall gives them.)`
    return `# Memory\nNotes kept from earlier runs, checked by the user:\n${block('memory', renderNotes(notes.slice(0, shown)))}${more}`
  },
}

const finalAnswer: ContextSection = {
  name: 'final answer',
  part: 'run',
  pinned: true,
  render: ({ task: { outputSchema } }) => {
    if (outputSchema === undefined) return undefined
    const rule =
      'The run ends with JSON that fits this JSON schema. Find out everything that it needs. ' +
      'The answer that ends the task is this JSON alone, without any other word; an answer that other steps build on is plain text.'
    return `# Final answer\n${rule}\n${block('schema', JSON.stringify(outputSchema))}`
  },
}

const plan: ContextSection = {
  name: 'plan',
  part: 'run',
  pinned: true,
  render: ({ work }) => {
    if (work === undefined) return undefined
    const steps = work.plan.steps.map(
      ({ id, title, needs }) => `- ${id}: ${title}${needs.length > 0 ? ` (after ${needs.join(', ')})` : ''}`,
    )
    return `# Plan\n${block('plan', `Goal: ${work.plan.goal}\n${steps.join('\n')}`)}`
  },
}

const progress: ContextSection = {
  name: 'progress',
  part: 'step',
  pinned: true,
  render: ({ work }) => {
    const lines = [...(work?.states ?? [])].filter(
      ([id, state]) => id !== work?.step.id && state !== 'pending',
    )
    if (lines.length === 0) return undefined
    return `# State of the plan\n${lines.map(([id, state]) => `${id}: ${state}`).join('\n')}`
  },
}

const results: ContextSection = {
  name: 'results',
  part: 'step',
  pinned: false,
  render: ({ work }, maxChars) => {
    if (work === undefined) return undefined
    const texts = fitAll(
      work.results.map(({ text }) => text),
      maxChars,
    )
    const blocks = work.results.map(({ stepId }, index) =>
      block('result', texts[index] ?? '', ` step="${stepId}"`),
    )
    return `# Results of earlier steps\n${blocks.length > 0 ? blocks.join('\n') : 'None.'}`
  },
}

const step: ContextSection = {
  name: 'step',
  part: 'step',
  pinned: true,
  render: ({ work }) =>
    work === undefined
      ? undefined
      : `# This step\nid: ${work.step.id}\ntitle: ${oneLine(work.step.title)}\n${block('instructions', work.step.instructions)}`,
}

const messages: ContextSection = {
  name: 'messages',
  part: 'step',
  pinned: false,
  render: (input, maxChars) => {
    const said = input.messages ?? []
    return said.length === 0 ? undefined : describeMessages(said, maxChars)
  },
}

/** The sections of a request, in order: the agent's own, and those of the application at their places. */
export function sectionsOf({ sections: given }: Pick<Task, 'sections'>): readonly ContextSection[] {
  return [
    task,
    images,
    facts,
    ...sectionsAt('before', given),
    workspace,
    guidance,
    skills,
    memory,
    ...sectionsAt('after', given),
    finalAnswer,
    plan,
    results,
    progress,
    step,
    messages,
  ]
}

/** Shares of the input budget for the unpinned sections of the run, and for those of a step. */
const shares = { run: 0.3, step: 0.3 } as const

export interface BuiltContext {
  readonly text: string
  /** What it shows of sections that are not the agent's own, in order. */
  readonly shown: readonly ShownSection[]
}

/** The text of {@link composeContext}. */
export function buildContext(...given: Parameters<typeof composeContext>): string {
  return composeContext(...given).text
}

/**
 * Builds the user message that begins a request. Unpinned sections are cut to their share of `maxChars`, the longest
 * first, whatever the others need. So the run's part does not depend on the step.
 */
export function composeContext(
  input: ContextInput,
  maxChars: number,
  sections: readonly ContextSection[] = sectionsOf(input.task),
): BuiltContext {
  const parts = (['run', 'step'] as const).flatMap((part) =>
    renderPart(
      sections.filter((section) => section.part === part),
      input,
      maxChars * shares[part],
    ),
  )
  return {
    text: parts.map(({ text }) => text).join('\n\n'),
    shown: parts.flatMap(({ shown }) => shown ?? []),
  }
}

interface RenderedSection {
  readonly text: string
  readonly shown?: ShownSection
}

function renderPart(
  sections: readonly ContextSection[],
  input: ContextInput,
  maxChars: number,
): RenderedSection[] {
  const whole = sections.map((section) => section.render(input, Number.POSITIVE_INFINITY))
  const sizes = whole.map((text, index) => (sections[index]?.pinned === true ? 0 : (text?.length ?? 0)))
  const shares = shareOut(sizes, maxChars)
  return sections.flatMap((section, index) => {
    const text = whole[index]
    const share = shares[index] ?? 0
    const room = (sizes[index] ?? 0) > share ? share : Number.POSITIVE_INFINITY
    const said = text !== undefined && room === share ? section.render(input, share) : text
    if (said === undefined) return []
    const shown = section.describe?.(input, room)
    return [{ text: said, ...(shown === undefined ? {} : { shown }) }]
  })
}

/**
 * Renders the person's messages during the run as a section. When `maxChars` is too small, the newest stay and a
 * count replaces the others; the last message always stays.
 */
export function describeMessages(said: readonly SteerMessage[], maxChars = Number.POSITIVE_INFINITY): string {
  let from = said.length
  for (let chars = 0; from > 0; from--) {
    chars += said[from - 1]?.text.length ?? 0
    if (chars > maxChars && from < said.length) break
  }
  const note = from === 0 ? '' : `(${from} earlier ones are left out.)\n`
  const blocks = said.slice(from).map(({ text }) => block('message', text))
  return `# Messages from the user\n${note}${blocks.join('\n')}`
}

/** Fits `texts` into `maxChars` in total: cuts the longest in their middle and keeps shorter ones whole. */
function fitAll(texts: readonly string[], maxChars: number): string[] {
  const shares = shareOut(
    texts.map(({ length }) => length),
    maxChars,
  )
  return texts.map((text, index) => truncateMiddle(text, shares[index] ?? 0))
}

/** Divides `total` among `sizes`; what one does not need of its even share goes to the others. */
function shareOut(sizes: readonly number[], total: number): number[] {
  const shares = sizes.map(() => 0)
  let left = total
  const order = sizes.map((_, index) => index).toSorted((a, b) => (sizes[a] ?? 0) - (sizes[b] ?? 0))
  order.forEach((index, place) => {
    const share = Math.min(sizes[index] ?? 0, Math.floor(left / (order.length - place)))
    shares[index] = share
    left -= share
  })
  return shares
}

/** Renders the section in about `maxChars` characters; undefined when there are no skills. */
function describeSkills(skills: readonly KnownSkill[], maxChars: number): string | undefined {
  if (skills.length === 0) return undefined
  const lines = skills.map(({ skillId, description }) =>
    description === '' ? `- ${skillId}` : `- ${skillId}: ${description}`,
  )
  let shown = 0
  for (let chars = 0; shown < lines.length; shown++) {
    chars += (lines[shown]?.length ?? 0) + 1
    if (chars > maxChars) break
  }
  const blocks = (['user', 'workspace'] as const).flatMap((source) => {
    const own = lines.filter((_, index) => index < shown && skills[index]?.source === source)
    return own.length === 0 ? [] : [block('skills', own.join('\n'), ` from="${source}"`)]
  })
  const rest = lines.length - shown
  if (rest > 0)
    blocks.push(`(${rest} more; load_skill lists the ids when it is asked for one that is not known.)`)
  return `# Skills\nLoad one with load_skill before work that its description fits.\n${blocks.join('\n')}`
}

/** Formats the notes in their order. */
export function renderNotes(notes: readonly MemoryNote[]): string {
  return notes
    .map(({ noteId, text, tags, state }) => {
      const tagged = tags.length === 0 ? '' : ` tags=${JSON.stringify(tags.map(oneLine).join(', '))}`
      const proposed = state === 'kept' ? '' : ' state="proposed"'
      return block('note', text, ` id="${noteId}"${tagged}${proposed}`)
    })
    .join('\n')
}
