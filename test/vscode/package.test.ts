// The package of the extension: what it holds, and that its manifest and code name the same commands.
import { readdirSync, readFileSync } from 'node:fs'
import path from 'node:path'
import { strFromU8, unzipSync } from 'fflate'
import { expect, it } from 'vitest'
import { buildExtension, packExtension } from '../../scripts/vscode-extension.ts'

const root = path.join(import.meta.dirname, '../..')

interface Manifest {
  readonly version: string
  readonly main: string
  readonly icon: string
  readonly activationEvents: readonly string[]
  readonly contributes: {
    readonly commands: readonly { readonly command: string }[]
    readonly menus: Readonly<Record<string, readonly { readonly command: string }[]>>
    readonly configuration: { readonly properties: Readonly<Record<string, { readonly scope: string }>> }
  }
}

it('has the manifest, one file of code, and what it names; the same sources give the same bytes [H.03]', async () => {
  const files = await buildExtension()
  const packed = packExtension(files)
  expect(Buffer.compare(packed, packExtension(await buildExtension()))).toBe(0)
  const entries = unzipSync(packed)
  expect(Object.keys(entries).toSorted()).toEqual([
    '[Content_Types].xml',
    'extension.vsixmanifest',
    ...[
      ...[
        'LICENSE.txt',
        'README.md',
        'THIRD-PARTY.txt',
        'bar.svg',
        'extension.cjs',
        'icon.png',
        'package.json',
      ],
    ].map((name) => `extension/${name}`),
  ])
  const text = (name: string) => strFromU8(entries[name] ?? new Uint8Array())
  const manifest = JSON.parse(text('extension/package.json')) as Manifest
  const { version } = JSON.parse(readFileSync(path.join(root, 'package.json'), 'utf8')) as Manifest
  expect(manifest.version).toBe(version)
  expect(text('extension.vsixmanifest')).toContain(`Version="${version}"`)
  // A compiled policy or template of another's would be a way to run text as code.
  expect(text('extension/extension.cjs')).not.toMatch(/\beval\(/)
  expect(text('extension/extension.cjs')).toContain('require("vscode")')
  // No path and no source of the machine that built it.
  for (const name of Object.keys(entries))
    expect(text(name), name).not.toMatch(/sourceMappingURL|sourcesContent/)
  expect(text('extension/extension.cjs')).not.toContain(root)
  expect(text('extension/THIRD-PARTY.txt')).toMatch(/^zod \d.*\n\nMIT License/m)
})

it('declares each command that the code has, in menus too, and settings that no workspace sets [H.03]', () => {
  const manifest = JSON.parse(readFileSync(path.join(root, 'vscode/manifest.json'), 'utf8')) as Manifest
  const { commands, menus, configuration } = manifest.contributes
  const declared = commands.map(({ command }) => command)
  const named = Object.values(menus).flatMap((items) => items.map(({ command }) => command))
  expect(named.filter((command) => !declared.includes(command))).toEqual([])
  const code = sources().join('\n')
  for (const command of declared)
    expect(code, command).toMatch(new RegExp(`\\b${command.replace('caisson.', '')}\\b`))
  for (const { scope } of Object.values(configuration.properties)) expect(scope).toBe('machine')
  expect(manifest.activationEvents).toEqual(['onStartupFinished'])
})

it('has no Markdown that is trusted, no webview, and no output of text as HTML [H.03 S4.12]', () => {
  for (const source of sources())
    expect(source).not.toMatch(/isTrusted|supportHtml|MarkdownString|createWebview|WebviewPanel|console\./)
})

function sources(): string[] {
  return readdirSync(path.join(root, 'vscode'), { recursive: true, encoding: 'utf8' })
    .filter((file) => file.endsWith('.ts') && !file.startsWith('test'))
    .map((file) => readFileSync(path.join(root, 'vscode', file), 'utf8'))
}
