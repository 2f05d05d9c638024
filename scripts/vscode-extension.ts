/**
 * Builds the extension for VS Code: `node --conditions=caisson-source scripts/vscode-extension.ts [FOLDER]`. Writes
 * `extension/`, which VS Code can run from, and `caisson-VERSION.vsix`. Default folder: `dist-vscode/`.
 */
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { build } from 'esbuild'
import { strToU8, zipSync } from 'fflate'
import { noticesOf } from './notices.ts'

const root = path.join(import.meta.dirname, '..')
const source = path.join(root, 'vscode')
/** A zip has no earlier time; the same sources give the same bytes. */
const zipTime = new Date(1980, 0, 1)

interface Manifest {
  readonly name: string
  readonly displayName: string
  readonly description: string
  readonly publisher: string
  readonly version: string
  readonly categories: readonly string[]
  readonly keywords: readonly string[]
  readonly engines: { readonly vscode: string }
  readonly extensionKind: readonly string[]
}

/** `package.json` of the extension, with the version of Caisson. */
export function readManifest(): Manifest {
  const read = (file: string) => JSON.parse(readFileSync(path.join(root, file), 'utf8')) as Manifest
  return { ...read('vscode/manifest.json'), version: read('package.json').version }
}

/** The files of the extension by name; its code is one of them. */
export async function buildExtension(): Promise<Map<string, Uint8Array>> {
  const manifest = readManifest()
  const { outputFiles, metafile } = await build({
    ...{
      bundle: true,
      write: false,
      metafile: true,
      minify: true,
      logLevel: 'silent',
      legalComments: 'none',
    },
    entryPoints: [path.join(source, 'extension.ts')],
    outfile: 'extension.cjs',
    platform: 'node',
    format: 'cjs',
    // Node of VS Code 1.101.
    target: 'node22',
    conditions: ['caisson-source'],
    external: ['vscode'],
    define: { extensionVersion: JSON.stringify(manifest.version) },
  })
  const [code] = outputFiles
  if (code === undefined) throw new Error('the extension has no code')
  const copied = ['README.md', 'icon.png', 'bar.svg'].map(
    (name) => [name, readFileSync(path.join(source, name))] as const,
  )
  return new Map<string, Uint8Array>([
    ['package.json', strToU8(`${JSON.stringify(manifest, null, 2)}\n`)],
    ['extension.cjs', code.contents],
    ...copied,
    ['LICENSE.txt', readFileSync(path.join(root, 'LICENSE'))],
    ['THIRD-PARTY.txt', strToU8(noticesOf('The code of this extension', Object.keys(metafile.inputs)))],
  ])
}

/**
 * The package that VS Code installs: a zip with the parts of an Open Packaging Convention (ECMA-376-2), as `vsce` makes it.
 * @param files of {@link buildExtension}
 */
export function packExtension(files: ReadonlyMap<string, Uint8Array>): Uint8Array {
  const parts = Object.fromEntries([...files].map(([name, content]) => [`extension/${name}`, content]))
  const entries = {
    'extension.vsixmanifest': strToU8(vsixManifest(readManifest())),
    '[Content_Types].xml': strToU8(contentTypes),
    ...parts,
  }
  return zipSync(entries, { level: 9, mtime: zipTime })
}

const contentTypes = `<?xml version="1.0" encoding="utf-8"?>
<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types"><Default Extension=".json" ContentType="application/json"/><Default Extension=".vsixmanifest" ContentType="text/xml"/><Default Extension=".cjs" ContentType="application/javascript"/><Default Extension=".md" ContentType="text/markdown"/><Default Extension=".txt" ContentType="text/plain"/><Default Extension=".png" ContentType="image/png"/><Default Extension=".svg" ContentType="image/svg+xml"/></Types>
`

function vsixManifest(manifest: Manifest): string {
  const { name, publisher, version, displayName, description, keywords, categories, engines } = manifest
  const kinds = manifest.extensionKind.join(',')
  return `<?xml version="1.0" encoding="utf-8"?>
<PackageManifest Version="2.0.0" xmlns="http://schemas.microsoft.com/developer/vsx-schema/2011">
  <Metadata>
    <Identity Language="en-US" Id="${xml(name)}" Version="${xml(version)}" Publisher="${xml(publisher)}"/>
    <DisplayName>${xml(displayName)}</DisplayName>
    <Description xml:space="preserve">${xml(description)}</Description>
    <Tags>${xml(keywords.join(','))}</Tags>
    <Categories>${xml(categories.join(','))}</Categories>
    <GalleryFlags>Public</GalleryFlags>
    <Properties>
      <Property Id="Microsoft.VisualStudio.Code.Engine" Value="${xml(engines.vscode)}"/>
      <Property Id="Microsoft.VisualStudio.Code.ExtensionDependencies" Value=""/>
      <Property Id="Microsoft.VisualStudio.Code.ExtensionPack" Value=""/>
      <Property Id="Microsoft.VisualStudio.Code.ExtensionKind" Value="${xml(kinds)}"/>
      <Property Id="Microsoft.VisualStudio.Code.ExecutesCode" Value="true"/>
      <Property Id="Microsoft.VisualStudio.Services.GitHubFlavoredMarkdown" Value="true"/>
      <Property Id="Microsoft.VisualStudio.Services.Content.Pricing" Value="Free"/>
    </Properties>
    <License>extension/LICENSE.txt</License>
    <Icon>extension/icon.png</Icon>
  </Metadata>
  <Installation><InstallationTarget Id="Microsoft.VisualStudio.Code"/></Installation>
  <Dependencies/>
  <Assets>
    <Asset Type="Microsoft.VisualStudio.Code.Manifest" Path="extension/package.json" Addressable="true"/>
    <Asset Type="Microsoft.VisualStudio.Services.Content.Details" Path="extension/README.md" Addressable="true"/>
    <Asset Type="Microsoft.VisualStudio.Services.Content.License" Path="extension/LICENSE.txt" Addressable="true"/>
    <Asset Type="Microsoft.VisualStudio.Services.Icons.Default" Path="extension/icon.png" Addressable="true"/>
  </Assets>
</PackageManifest>
`
}

function xml(text: string): string {
  return text.replace(/[&<>"]/g, (character) => `&#${character.charCodeAt(0)};`)
}

if (import.meta.main) {
  const folder = path.resolve(process.argv[2] ?? path.join(root, 'dist-vscode'))
  const files = await buildExtension()
  rmSync(folder, { recursive: true, force: true })
  mkdirSync(path.join(folder, 'extension'), { recursive: true })
  for (const [name, content] of files) writeFileSync(path.join(folder, 'extension', name), content)
  const file = path.join(folder, `caisson-${readManifest().version}.vsix`)
  const packed = packExtension(files)
  writeFileSync(file, packed)
  console.log(`${path.relative('', file)}: ${Math.ceil(packed.length / 1_024)} KiB`)
}
