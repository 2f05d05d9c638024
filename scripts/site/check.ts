/**
 * Checks the built site: every link leads to a page and a heading of it, and no page asks another server for anything.
 * usage: check.ts FOLDER
 */
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import path from 'node:path'

/** One line for each dead link, dead anchor and request to another server in the built site. */
export function siteProblems(folder: string): string[] {
  const files = readdirSync(folder, { recursive: true, encoding: 'utf8' })
  const pages = new Map(
    files
      .filter((file) => file.endsWith('.html') && file !== '404.html')
      .map((file) => [file, readFileSync(path.join(folder, file), 'utf8')]),
  )
  if (pages.size === 0) return [`${folder}: expected pages, found none`]
  const anchors = new Map(
    [...pages].map(([file, html]) => [
      file,
      new Set([...html.matchAll(/ id="([^"]+)"/g)].map(([, id]) => id)),
    ]),
  )
  const problems = [...pages].flatMap(([file, html]) => {
    const links = [...html.matchAll(/<a\b[^>]*? href="([^"]*)"/g)].map(([, href = '']) => href)
    return [...new Set(links)].flatMap((href) => {
      if (/^[a-z]+:/.test(href)) return []
      const [target = '', anchor = ''] = decodeURIComponent(href.replaceAll('&amp;', '&')).split('#')
      const place = target === '' ? file : placeOf(folder, path.join('/', path.dirname(file)), target)
      if (place === undefined) return [`${file}: dead link ${href}`]
      const known = anchors.get(place)
      return anchor === '' || known === undefined || known.has(anchor) ? [] : [`${file}: dead anchor ${href}`]
    })
  })
  for (const [file, html] of pages) {
    for (const [tag] of html.matchAll(
      /<(?:script|link|img|iframe|source)\b[^>]*\b(?:src|href)="(?:https?:)?\/\/[^>]*>/g,
    ))
      problems.push(`${file}: request to another server: ${tag}`)
  }
  for (const file of files.filter((name) => name.endsWith('.css'))) {
    const text = readFileSync(path.join(folder, file), 'utf8')
    for (const [call] of text.matchAll(/(?:url\(|@import )["']?(?:https?:)?\/\/[^)\s]*/g))
      problems.push(`${file}: request to another server: ${call}`)
  }
  return problems
}

/** The file that a server gives for a URL of the site. */
function placeOf(folder: string, from: string, target: string): string | undefined {
  const url = path.resolve(from, target).slice(1)
  const candidates = target.endsWith('/') ? [path.join(url, 'index.html')] : [url, `${url}.html`]
  return candidates.find((file) => file !== '' && existsSync(path.join(folder, file)))
}

if (import.meta.main) {
  const folder = process.argv[2]
  if (folder === undefined) throw new Error('usage: check.ts FOLDER')
  const problems = siteProblems(folder)
  for (const problem of problems) console.error(problem)
  console.log(`site: ${problems.length} problems`)
  process.exitCode = problems.length === 0 ? 0 : 1
}
