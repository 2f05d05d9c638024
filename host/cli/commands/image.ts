/** `caisson image`: builds, describes and verifies the image, and prints its bill of materials. */
import path from 'node:path'
import { formatBytes } from '../../files/format.ts'
import { ensureImage, findImage, type Image, updateImageLock, verifyImage } from '../../image/image.ts'
import type { Architecture } from '../../image/recipe-key.ts'
import { readBom } from '../../image/sbom.ts'
import { prepareFolders } from '../../state/folders.ts'
import { type ExitCode, exitCodes } from '../exit-codes.ts'
import { hostOf, type Io } from '../io.ts'
import { writeJsonLine } from '../render/json-lines.ts'
import { sanitizeLine } from '../render/sanitize.ts'

interface ImageFlags {
  readonly arch: Architecture
}

export async function imageBuild(io: Io, flags: ImageFlags & { updateLock?: boolean }): Promise<ExitCode> {
  const { folders } = hostOf(io)
  const onProgress = (text: string) => io.stderr.write(`${sanitizeLine(text)}\n`)
  await prepareFolders(folders)
  const options = { cacheDir: folders.cache, arch: flags.arch, onProgress }
  if (flags.updateLock === true) await updateImageLock(options)
  // Who asks for a build wants a good image at the end of it, also where a bad one lies.
  describe(io, await ensureImage({ ...options, replaceDamaged: true }))
  if (flags.arch !== 'amd64')
    io.stderr.write(`the image for ${flags.arch} is for other machines: VMs on this machine are amd64\n`)
  return exitCodes.completed
}

export async function imageInfo(io: Io, flags: ImageFlags & { json?: boolean }): Promise<ExitCode> {
  const image = await findImage(placeOf(io, flags))
  if (image === undefined) return missing(io, flags)
  if (flags.json === true) await writeJsonLine(io.stdout, image)
  else describe(io, image)
  return exitCodes.completed
}

export async function imageVerify(io: Io, flags: ImageFlags): Promise<ExitCode> {
  const image = await verifyImage(placeOf(io, flags))
  if (image === undefined) return missing(io, flags)
  io.stdout.write(`verified: ${image.directory} matches its manifest\n`)
  return exitCodes.completed
}

/** CycloneDX JSON on standard output and nothing else there. */
export async function imageSbom(io: Io, flags: ImageFlags): Promise<ExitCode> {
  const image = await findImage(placeOf(io, flags))
  if (image === undefined) return missing(io, flags)
  const bom = await readBom(image.directory, path.dirname(image.agentDisk))
  io.stdout.write(`${JSON.stringify(bom, null, 2)}\n`)
  return exitCodes.completed
}

function placeOf(io: Io, { arch }: ImageFlags) {
  return { cacheDir: hostOf(io).folders.cache, arch }
}

function missing(io: Io, { arch }: ImageFlags): ExitCode {
  const option = arch === 'amd64' ? '' : ` --arch ${arch}`
  io.stderr.write(`caisson: there is no image yet; to build it: caisson image build${option}\n`)
  return exitCodes.environment
}

function describe(io: Io, image: Image): void {
  const { arch, files, versions } = image.manifest
  io.stdout.write(`${image.directory}\n`)
  for (const [name, { bytes, sha256 }] of Object.entries(files)) {
    io.stdout.write(
      `  ${name.padEnd(13)} ${formatBytes(bytes).padStart(8)}  sha256 ${sha256.slice(0, 16)}…\n`,
    )
  }
  io.stdout.write(`  agent         ${image.agentDigest.slice(0, 16)}…\n  architecture: ${arch}\n`)
  for (const [name, version] of Object.entries(versions)) io.stdout.write(`  ${name}: ${String(version)}\n`)
}
