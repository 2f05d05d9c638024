/**
 * Bundles the command line for tests, which start it hundreds of times: a bundle starts in half the processor time of its
 * 1,300 modules. It is the same program, with the same places in this checkout.
 * usage: bundle-cli.ts FOLDER — writes FOLDER/host/cli/bin.js. FOLDER lies in this checkout, whose packages it finds.
 */
import { readFile } from 'node:fs/promises'
import path from 'node:path'
import { pathToFileURL } from 'node:url'
import { build, type Plugin } from 'esbuild'

const root = path.join(import.meta.dirname, '..')
const out = path.resolve(process.argv[2] ?? '')
if (!out.startsWith(`${root}${path.sep}`)) throw new Error(`FOLDER must lie in ${root}`)

/** Started beside the bundle and not from its source. */
const startsBeside = path.join(root, 'host/cli/commands/detach.ts')

const places: Plugin = {
  name: 'places of the sources',
  setup: ({ onLoad }) =>
    onLoad({ filter: /\.ts$/ }, async ({ path: file }) => {
      const text = await readFile(file, 'utf8')
      const isOwn = !file.includes(`${path.sep}node_modules${path.sep}`)
      if (!isOwn || !text.includes('import.meta.')) return undefined
      const place =
        file === startsBeside ? path.join(out, path.relative(root, file)).replace(/\.ts$/, '.js') : file
      const contents = text
        .replaceAll('import.meta.dirname', JSON.stringify(path.dirname(place)))
        .replaceAll('import.meta.filename', JSON.stringify(place))
        .replaceAll('import.meta.url', JSON.stringify(pathToFileURL(place).href))
      return { contents, loader: 'ts' }
    }),
}

await build({
  absWorkingDir: root,
  entryPoints: ['host/cli/bin.ts', 'host/cli/detached-host.ts'],
  outbase: root,
  outdir: out,
  bundle: true,
  splitting: true,
  keepNames: true,
  platform: 'node',
  format: 'esm',
  target: 'node24',
  conditions: ['caisson-source'],
  plugins: [places],
  // They find files or programs of their own by where they are.
  external: ['esbuild', 'fastify', '@fastify/*', 'linkedom', 'pg', 'pg-boss', 'pino', '@viz-js/viz'],
  banner: {
    js: "import { createRequire as ofNode } from 'node:module'; const require = ofNode(import.meta.url);",
  },
  logLevel: 'warning',
})
