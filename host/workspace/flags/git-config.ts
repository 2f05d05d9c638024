/**
 * Parses the text of a git configuration file (git-config(1), "Syntax"). Never fails: an invalid part ends at the end
 * of its line, where git would refuse the file. Runs nothing, opens nothing.
 */

interface GitSetting {
  /** Section, subsection as written, and name, such as `filter.LFS.clean`; section and name in lower case. */
  readonly key: string
  /** `true` for a name without a value. */
  readonly value: string
}

/** The settings of a text, in order. */
export function parseGitConfig(text: string): GitSetting[] {
  const settings: GitSetting[] = []
  const source = text.replace(/^\ufeff/, '').replaceAll('\r\n', '\n')
  let section = ''
  for (let at = 0; at < source.length; ) {
    const rest = matcher(source, at)
    const space = rest(/[\s]+|[#;][^\n]*/y)
    const header = space ?? rest(/\[\s*([\w.-]+)(?:\s+"((?:[^"\\\n]|\\.)*)")?\s*\]/y)
    const name = header ?? rest(/([A-Za-z][\w-]*)[^\S\n]*(=?)/y)
    if (space !== undefined) at += space[0].length
    else if (header !== undefined) {
      const [whole, group = '', sub] = header
      section =
        sub === undefined ? group.toLowerCase() : `${group.toLowerCase()}.${sub.replace(/\\(.)/g, '$1')}`
      at += whole.length
    } else if (name !== undefined) {
      const [whole, word = '', equals] = name
      at += whole.length
      const value = equals === '=' ? readValue(source, at) : { text: 'true', end: at }
      settings.push({ key: `${section}.${word.toLowerCase()}`, value: value.text })
      at = value.end
    } else at = endOfLine(source, at)
  }
  return settings
}

function matcher(source: string, at: number) {
  return (pattern: RegExp): RegExpExecArray | undefined => {
    pattern.lastIndex = at
    return pattern.exec(source) ?? undefined
  }
}

function endOfLine(source: string, at: number): number {
  const end = source.indexOf('\n', at)
  return end < 0 ? source.length : end
}

/**
 * A value ends at the end of its line or at a comment; a backslash continues it, and quotes keep spaces and comment
 * signs.
 */
function readValue(source: string, from: number): { text: string; end: number } {
  const escapes: Readonly<Record<string, string>> = { n: '\n', t: '\t', b: '\b', '\n': '' }
  let text = ''
  /** Length without trailing unquoted spaces. */
  let kept = 0
  let isQuoted = false
  let at = from
  for (; at < source.length && source[at] !== '\n'; at++) {
    const sign = source[at] ?? ''
    if (sign === '\\') {
      const next = source[++at] ?? ''
      text += escapes[next] ?? next
    } else if (sign === '"') isQuoted = !isQuoted
    else if (!isQuoted && (sign === '#' || sign === ';')) {
      at = endOfLine(source, at)
      break
    } else if (isQuoted || text !== '' || !/\s/.test(sign)) text += sign
    if (isQuoted || !/\s/.test(sign)) kept = text.length
  }
  return { text: text.slice(0, kept), end: at }
}
