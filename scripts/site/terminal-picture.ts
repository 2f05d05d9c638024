/**
 * Draws a captured terminal as an SVG picture: `tmux capture-pane -p -e | node terminal-picture.ts TITLE >run.svg`.
 * It adds nothing to what was captured but the frame.
 */
import { readFileSync } from 'node:fs'

const COLUMNS = 92
const CHARACTER_WIDTH = 8.05
const LINE_HEIGHT = 18
const PADDING = 16
const HEADER = 34
/** Colors of the codes that Caisson prints. */
const colors: Readonly<Record<string, string>> = {
  31: '#ff8a80',
  32: '#86d993',
  33: '#f2cc60',
  36: '#7fd7e8',
}

const escapeCode = String.fromCharCode(27)
const colorCode = new RegExp(`${escapeCode}\\[([\\d;]*)m`)

interface Style {
  color?: string | undefined
  bold?: boolean
  dim?: boolean
}

const escapeXml = (text: string) => text.replace(/[&<>]/g, (sign) => `&#${sign.charCodeAt(0)};`)

function styleAfter(before: Style, codes: string): Style {
  let style = { ...before }
  for (const code of codes.split(';')) {
    if (code === '0' || code === '') style = {}
    else if (code === '1') style.bold = true
    else if (code === '2') style.dim = true
    else if (code === '39') delete style.color
    else if (code in colors) style.color = colors[code]
  }
  return style
}

/** An SVG of `captured`, which may hold colors as `CSI … m`. */
export function drawTerminal(captured: string, title: string): string {
  let style: Style = {}
  const lines = captured.trimEnd().split('\n')
  const rows = lines.map((line, index) => {
    const spans = line.split(colorCode).map((part, place) => {
      // Every second part is what the expression captured.
      if (place % 2 === 1) {
        style = styleAfter(style, part)
        return ''
      }
      const fill = style.color ?? (style.dim ? '#9198a1' : '')
      const attributes = `${fill && ` fill="${fill}"`}${style.bold ? ' font-weight="bold"' : ''}`
      return part === '' ? '' : `<tspan${attributes}>${escapeXml(part)}</tspan>`
    })
    const y = HEADER + PADDING + index * LINE_HEIGHT + 12
    return `<text x="${PADDING}" y="${y}" xml:space="preserve">${spans.join('')}</text>`
  })
  const width = Math.round(COLUMNS * CHARACTER_WIDTH + 2 * PADDING)
  const height = HEADER + 2 * PADDING + lines.length * LINE_HEIGHT
  const dots = ['#ff5f57', '#febc2e', '#28c840'].map(
    (color, index) => `<circle cx="${20 + index * 18}" cy="17" r="5.5" fill="${color}"/>`,
  )
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}" role="img" aria-label="${escapeXml(title)}">
<rect width="${width}" height="${height}" rx="8" fill="#161b22"/>
${dots.join('\n')}
<g font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace" font-size="13.4" fill="#e6edf3">
${rows.join('\n')}
</g>
</svg>
`
}

if (import.meta.main) {
  const [title = 'A run in a terminal'] = process.argv.slice(2)
  process.stdout.write(drawTerminal(readFileSync(0, 'utf8'), title))
}
