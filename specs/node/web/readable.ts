/**
 * Converts an HTML page to Markdown for a model: its article if there is one, else the whole body, without scripts,
 * hidden elements and images. Runs in a separate process, see reader.ts: pages are hostile.
 */
import { Readability } from '@mozilla/readability'
import { parseHTML } from 'linkedom'
import TurndownService from 'turndown'

export interface ReadablePage {
  readonly title: string
  readonly markdown: string
}

/** The DOM properties in use; linkedom's own types require a browser's. */
interface Element {
  readonly nodeName: string
  readonly textContent: string | null
  readonly children: Iterable<Element>
  getAttribute(name: string): string | null
  setAttribute(name: string, value: string): void
  removeAttribute(name: string): void
  querySelector(selector: string): Element | null
  querySelectorAll(selector: string): Iterable<Element>
  prepend(child: Element): void
  remove(): void
}
interface Document extends Element {
  readonly head: Element
  readonly body: Element
  createElement(name: string): Element
}

/** A shorter article is accepted only if it is a large part of the page: lists and indexes are not articles. */
const articleMinChars = 500
const articleMinShare = 0.3
/** Maximum elements of a page for article detection. */
const articleMaxElements = 100_000

const neverShown =
  'script,style,noscript,template,iframe,object,embed,svg,canvas,audio,video,button,input,select,textarea,dialog,' +
  '[hidden],[aria-hidden="true"],[style*="display:none"],[style*="display: none"],[style*="visibility:hidden"],' +
  '[style*="visibility: hidden"]'

/** @param url of the page, the base of its links. Throws when a page is too deep or not HTML */
export function makeReadable(html: string, url: string): ReadablePage {
  const page = parsePage(html, url)
  const title = oneLine(page.querySelector('title')?.textContent ?? '')
  const whole = oneLine(textOf(page.body)).length
  // This modifies the page.
  const article = findArticle(page)
  const isArticle =
    article !== null && (article.chars >= articleMinChars || article.chars >= whole * articleMinShare)
  const { body } = parsePage(isArticle ? article.html : html, url)
  const markdown = createConverter().turndown(body as never)
  return {
    title: oneLine((isArticle && article.title) || title),
    // Models can read Unicode's tag characters, people cannot.
    markdown: markdown
      .replaceAll(/[\u{e0000}-\u{e007f}]/gu, '')
      .replaceAll(/\n{3,}/g, '\n\n')
      .trim(),
  }
}

/** A document whose head has the base of its links and whose body has no invisible content. */
function parsePage(html: string, url: string): Document {
  const whole = /<html[\s>]/i.test(html)
    ? html
    : `<!doctype html><html><head></head><body>${html}</body></html>`
  const document = parseHTML(whole).document as unknown as Document
  const base = document.createElement('base')
  const own = document.querySelector('base[href]')?.getAttribute('href')
  base.setAttribute('href', resolve(own, url) ?? url)
  for (const element of document.querySelectorAll('base')) element.remove()
  document.head.prepend(base)
  for (const element of document.querySelectorAll(neverShown)) element.remove()
  for (const link of document.querySelectorAll('a[href]')) {
    const href = resolve(link.getAttribute('href'), base.getAttribute('href') ?? url)
    if (href === null) link.removeAttribute('href')
    else link.setAttribute('href', href)
  }
  return document
}

function findArticle(document: Document): { html: string; title: string; chars: number } | null {
  try {
    const options = { maxElemsToParse: articleMaxElements }
    const article = new Readability(document as never, options).parse()
    if (typeof article?.content !== 'string') return null
    return {
      html: article.content,
      title: article.title ?? '',
      chars: oneLine(article.textContent ?? '').length,
    }
  } catch {
    return null
  }
}

function createConverter(): TurndownService {
  const converter = new TurndownService({
    headingStyle: 'atx',
    codeBlockStyle: 'fenced',
    bulletListMarker: '-',
  })
  converter.remove('title')
  converter.addRule('picture', {
    filter: ['img', 'picture', 'figure'],
    replacement: (content, node) => {
      const { nodeName, getAttribute } = node as unknown as Element
      if (nodeName !== 'IMG') return content
      const alt = oneLine(getAttribute.call(node, 'alt') ?? '')
      return alt === '' ? '' : `[picture: ${alt}]`
    },
  })
  converter.addRule('link', {
    filter: 'a',
    replacement: (content, node) => {
      const href = (node as unknown as Element).getAttribute('href') ?? ''
      const text = oneLine(content)
      return href === '' || text === '' ? content : `[${text}](${href})`
    },
  })
  converter.addRule('table', {
    filter: 'table',
    replacement: (content, node) => tableToMarkdown(node as unknown as Element) ?? content,
  })
  return converter
}

/** Rows and cells; null for a layout table, whose content is converted as ordinary text. */
function tableToMarkdown(table: Element): string | null {
  if (table.querySelector('table,ul,ol,pre,h1,h2,h3,h4,h5,h6') !== null) return null
  const rows = [...table.querySelectorAll('tr')].map((row) =>
    [...row.children]
      .filter(({ nodeName }) => nodeName === 'TD' || nodeName === 'TH')
      .map((cell) => oneLine(textOf(cell)).replaceAll('|', '\\|')),
  )
  const width = Math.max(0, ...rows.map((row) => row.length))
  const [head, ...body] = rows.filter((row) => row.length > 0)
  if (head === undefined || width < 2) return null
  const line = (cells: readonly string[]): string =>
    `| ${Array.from({ length: width }, (_, index) => cells[index] ?? '').join(' | ')} |`
  return `\n\n${[line(head), line(Array.from({ length: width }, () => '---')), ...body.map(line)].join('\n')}\n\n`
}

/** A web address; null for others, such as `javascript:` or data URLs. */
function resolve(href: string | null | undefined, base: string): string | null {
  if (href === null || href === undefined || !URL.canParse(href, base)) return null
  const url = new URL(href, base)
  return /^(?:https?|mailto):$/.test(url.protocol) ? url.href : null
}

function textOf(element: Element): string {
  return element.textContent ?? ''
}

function oneLine(text: string): string {
  return text.replaceAll(/\s+/g, ' ').trim()
}
