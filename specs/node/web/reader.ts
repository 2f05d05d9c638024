/**
 * The process that converts one page: `{html,url}` as JSON on standard input, `{title,markdown}` on standard output.
 * It has no access beyond the page: it may neither write files nor start programs; see read-page.ts.
 */
import { text } from 'node:stream/consumers'
import { makeReadable } from './readable.ts'

const { html, url } = JSON.parse(await text(process.stdin)) as { html: string; url: string }
process.stdout.write(JSON.stringify(makeReadable(html, url)))
