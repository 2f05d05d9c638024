// What servers in other languages make of a value that they echo, as their own encoders write it.
import { describe, expect, it } from 'vitest'
import { createRedaction } from '../../secrets/redaction.ts'

describe('a secret that a server echoes', () => {
  // Of base64, as many tokens are, and with what is special in some language.
  const tail = '0123456789abcdef'
  it.each([
    ['PHP, json_encode', `a/b+c==${tail}`, `a\\/b+c==${tail}`],
    ['.NET, System.Text.Json', `a/b+c==${tail}`, `a/b\\u002Bc==${tail}`],
    ['Gson', `a/b+c==${tail}`, `a/b+c\\u003d\\u003d${tail}`],
    ['Go, encoding/json', `a<b>&${tail}`, `a\\u003cb\\u003e\\u0026${tail}`],
    ['Go, html/template', `a/b+c==${tail}`, `a/b&#43;c==${tail}`],
    ['Mustache', `a/b+c==${tail}`, `a&#x2F;b+c&#x3D;&#x3D;${tail}`],
    ['Handlebars', `a/b+c='${tail}`, `a/b+c&#x3D;&#x27;${tail}`],
    ['PHP, htmlspecialchars', `a'b"${tail}`, `a&#039;b&quot;${tail}`],
    ['Python, html.escape', `a'b"${tail}`, `a&#x27;b&quot;${tail}`],
    ['Jinja', `a'b"${tail}`, `a&#39;b&#34;${tail}`],
    ['Python, quote', `a/b+c==${tail}`, `a/b%2Bc%3D%3D${tail}`],
    ['.NET, HttpUtility.UrlEncode', `a/b+c==${tail}`, `a%2fb%2bc%3d%3d${tail}`],
    ['Java, URLEncoder', `a b!${tail}`, `a+b%21${tail}`],
  ])('is taken out as it is written by %s [G.04]', (_, value, echoed) => {
    const redaction = createRedaction([value])
    expect(redaction.text(`x ${echoed} y`)).toBe('x [redacted] y')
    const stream = redaction.stream()
    const bytes = Buffer.concat([stream.push(Buffer.from(`x ${echoed} y`)), stream.end()])
    expect(bytes.toString()).toBe('x [redacted] y')
  })
})
