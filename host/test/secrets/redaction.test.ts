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

describe('an encoded form', () => {
  const secret = (length: number) => 'k7#Qz!x2'.slice(0, length)
  const encoded = (value: string) => ({
    hex: Buffer.from(value).toString('hex'),
    base64: Buffer.from(value).toString('base64'),
    reversed: [...value].reverse().join(''),
  })

  it('is taken out from the length at which it is no word by chance [G.04]', () => {
    const [seven, eight] = [encoded(secret(7)), encoded(secret(8))]
    for (const form of [eight.hex, eight.reversed])
      expect(createRedaction([secret(8)]).text(form)).toBe('[redacted]')
    for (const form of [seven.hex, seven.reversed]) expect(createRedaction([secret(7)]).text(form)).toBe(form)
    expect(createRedaction([secret(6)]).text(encoded(secret(6)).base64)).toBe('[redacted]')
    const five = encoded(secret(5)).base64
    expect(createRedaction([secret(5)]).text(five)).toBe(five)
  })

  it('in base64 is taken out as a whole, to its last character that depends on the secret alone [G.04]', () => {
    const value = `${secret(8)}-${secret(8)}-${secret(3)}`
    expect(createRedaction([value]).text(encoded(value).base64)).toBe('[redacted]')
  })
})
