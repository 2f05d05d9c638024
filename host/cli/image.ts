/** `caisson image`: builds, describes and verifies the image. */
import { findImage, type Image, updateImageLock, verifyImage } from '../image/image.ts'
import { prepareFolders } from '../state/folders.ts'
import { formatBytes } from '../ui/format.ts'
import { type ExitCode, exitCodes } from './exit-codes.ts'
import { hostOf, type Io } from './io.ts'
import { writeJsonLine } from './json-lines.ts'

export async function imageBuild(io: Io, flags: { updateLock?: boolean }): Promise<ExitCode> {
  const host = hostOf(io)
  const onProgress = (text: string) => io.stderr.write(`${text}\n`)
  await prepareFolders(host.folders)
  if (flags.updateLock === true) await updateImageLock({ cacheDir: host.folders.cache, onProgress })
  describe(io, await host.image({ onProgress }))
  return exitCodes.completed
}

export async function imageInfo(io: Io, flags: { json?: boolean }): Promise<ExitCode> {
  const image = await findImage({ cacheDir: hostOf(io).folders.cache })
  if (image === undefined) return missing(io)
  if (flags.json === true) await writeJsonLine(io.stdout, image)
  else describe(io, image)
  return exitCodes.completed
}

export async function imageVerify(io: Io): Promise<ExitCode> {
  const image = await verifyImage({ cacheDir: hostOf(io).folders.cache })
  if (image === undefined) return missing(io)
  io.stdout.write(`every byte is as its manifest says: ${image.directory}\n`)
  return exitCodes.completed
}

function missing(io: Io): ExitCode {
  io.stderr.write('caisson: there is no image yet; build it: caisson image build\n')
  return exitCodes.environment
}

function describe(io: Io, image: Image): void {
  const { files, versions } = image.manifest
  io.stdout.write(`${image.directory}\n`)
  for (const [name, { bytes, sha256 }] of Object.entries(files)) {
    io.stdout.write(
      `  ${name.padEnd(12)} ${formatBytes(bytes).padStart(8)}  sha256 ${sha256.slice(0, 16)}…\n`,
    )
  }
  io.stdout.write(`  agent        ${image.agentDigest.slice(0, 16)}…\n`)
  for (const [name, version] of Object.entries(versions)) io.stdout.write(`  ${name}: ${String(version)}\n`)
}
