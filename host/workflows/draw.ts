/** Draws a workflow: as text for Mermaid, which GitHub and editors show, or as an SVG image by Graphviz. */
import { expressionMaxChars } from '#specs/node/workflow/expression.ts'
import type { Edge, WorkflowStep, WorkspaceData } from '#specs/node/workflow/workspace-data.ts'
import type { StepWorkName } from '#specs/protocol/workflow-format.ts'

const labelMaxChars = 60

/** A Mermaid flowchart. */
export function drawMermaid({ steps }: Pick<WorkspaceData, 'steps'>): string {
  const ids = new Map(steps.map(({ id }, index) => [id, `s${index}`]))
  const lines = steps.flatMap((step) => {
    const own = ids.get(step.id)
    const [open, close] = mermaidShapes[step.work]
    return [
      `  ${own}${open}"${linesOf(step).map(mermaidText).join('<br>')}"${close}`,
      ...waysOf(step).map(({ to, on, label }) => {
        const target = to === '-' ? 'done' : ids.get(to)
        const arrow = on === 'failed' ? '-.->' : '-->'
        return `  ${own} ${arrow}${label === '' ? '' : `|"${mermaidText(label)}"|`} ${target}`
      }),
    ]
  })
  return ['flowchart TD', '  start((start)) --> s0', ...lines, '  done((end))', ''].join('\n')
}

const mermaidShapes: Readonly<Record<StepWorkName, readonly [string, string]>> = {
  chat: ['[', ']'],
  call: ['[[', ']]'],
  ask: ['{{', '}}'],
  wait: ['([', '])'],
  workflow: ['[/', '/]'],
  from: ['[/', '/]'],
}

/** Mermaid reads entities as `#NUMBER;`; text has no other way to end its quotes. */
function mermaidText(text: string): string {
  return text.replaceAll(/[^\p{L}\p{N} ,.:;()=+\-*/]/gu, (character) => `#${character.codePointAt(0)};`)
}

/** An SVG image. Loads Graphviz, compiled to WebAssembly, on first use. */
export async function drawSvg({ steps }: Pick<WorkspaceData, 'steps'>): Promise<string> {
  const { instance } = await import('@viz-js/viz')
  const viz = await instance()
  const ids = new Map(steps.map(({ id }, index) => [id, `s${index}`]))
  return viz.renderString(
    {
      graphAttributes: { rankdir: 'TB', bgcolor: 'transparent' },
      nodeAttributes: { fontname: fonts, fontsize: 12, style: 'rounded', color: '#667' },
      edgeAttributes: { fontname: fonts, fontsize: 10, color: '#667' },
      nodes: [
        { name: 'start', attributes: { shape: 'circle', label: 'start' } },
        ...steps.map((step) => ({
          name: ids.get(step.id) ?? '',
          attributes: {
            shape: graphvizShapes[step.work],
            label: linesOf(step).map(graphvizText).join('\\n'),
          },
        })),
        { name: 'done', attributes: { shape: 'doublecircle', label: 'end' } },
      ],
      edges: [
        { tail: 'start', head: 's0' },
        ...steps.flatMap((step) =>
          waysOf(step).map(({ to, on, label }) => ({
            tail: ids.get(step.id) ?? '',
            head: to === '-' ? 'done' : (ids.get(to) ?? ''),
            attributes: { label: graphvizText(label), style: on === 'failed' ? 'dashed' : 'solid' },
          })),
        ),
      ],
    },
    { format: 'svg' },
  )
}

const fonts = 'Helvetica,Arial,sans-serif'

const graphvizShapes: Readonly<Record<StepWorkName, string>> = {
  chat: 'box',
  call: 'component',
  ask: 'hexagon',
  wait: 'oval',
  workflow: 'folder',
  from: 'folder',
}

/**
 * Graphviz reads escapes and entities in labels. It measures Helvetica; what a browser shows instead can be a fifth wider, so
 * spaces keep room for it.
 */
function graphvizText(text: string): string {
  const room = ' '.repeat(Math.ceil(text.length / 5))
  return `${room}${text.replaceAll('\\', '\\\\').replaceAll('&', '&amp;')}${room}`
}

/** What is written in the box of a step. */
function linesOf({ id, name, work, details }: WorkflowStep): string[] {
  const { each, repeat, model, when, from = '' } = details
  const extra = [
    work === 'chat' ? (model ?? '') : work === 'call' ? `call ${details.call?.function ?? ''}` : from || work,
    when === undefined ? '' : `if ${when}`,
    each === undefined ? '' : `for each of ${each.in}`,
    repeat === undefined ? '' : `until ${repeat.until}, at most ${repeat.max} times`,
  ]
  return [name === id ? id : `${id}: ${name}`, ...extra].filter((line) => line !== '').map(toLabel)
}

interface Way extends Pick<Edge, 'to' | 'on'> {
  readonly label: string
}

/** The edges of a step; the end of the workflow is `-`. */
function waysOf({ next }: WorkflowStep): Way[] {
  const ways = next.map(({ to, on, when, isCase }) => ({
    to,
    on,
    label: toLabel(on === 'failed' ? 'failure' : isCase ? (when ?? 'else') : ''),
  }))
  return ways.some(({ on }) => on === 'completed') ? ways : [{ to: '-', on: 'completed', label: '' }, ...ways]
}

function toLabel(text: string): string {
  const flat = text
    .slice(0, expressionMaxChars)
    .replaceAll(/[\s\p{C}]+/gu, ' ')
    .trim()
  return flat.length > labelMaxChars ? `${flat.slice(0, labelMaxChars - 1)}…`.toWellFormed() : flat
}
