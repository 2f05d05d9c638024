/** `caisson runs export` and `import`: a run as one file. */
import { open, rename, rm } from 'node:fs/promises'
import path from 'node:path'
import { PassThrough, type Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { CaissonError } from '#specs/errors.ts'
import { syncDirectory } from '../../files/durable.ts'
import { type ExitCode, exitCodes } from '../exit-codes.ts'
import { findRun, hostOf, type Io } from '../io.ts'
import { sanitizeLine } from '../render/sanitize.ts'

export async function runsExport(io: Io, name: string, flags: { output?: string }): Promise<ExitCode> {
  const { output } = flags
  if (output === undefined && io.stdout.isTTY === true)
    throw new CaissonError(
      'invalid_options',
      'the exported run is binary, and standard output is a terminal',
      {
        remedy: 'name a file: -o run.caisson',
      },
    )
  const runId = await findRun(io, name)
  if (output === undefined)
    await exportTo(io, runId, (archive) => pipeline(archive, io.stdout, { end: false }))
  else await exportToFile(io, runId, output)
  return exitCodes.completed
}

/** The file is there when it is whole; one of this name is replaced. */
async function exportToFile(io: Io, runId: string, output: string): Promise<void> {
  const draft = `${output}.${process.pid}.new`
  const handle = await open(draft, 'wx', 0o600).catch((error: unknown) => {
    throw new CaissonError(
      'invalid_options',
      `cannot write ${sanitizeLine(output)}: ${CaissonError.from(error).message}`,
    )
  })
  try {
    {
      await using file = handle
      await exportTo(io, runId, async (archive) => {
        for await (const piece of archive) await file.appendFile(piece)
      })
      await file.sync()
    }
    await rename(draft, output)
    await syncDirectory(path.dirname(path.resolve(output)))
  } catch (error) {
    await rm(draft, { force: true })
    throw error
  }
  io.stdout.write(`exported ${runId} to ${sanitizeLine(output)}\n`)
}

async function exportTo(io: Io, runId: string, send: (archive: PassThrough) => Promise<void>): Promise<void> {
  const archive = new PassThrough()
  const sent = send(archive)
  const onNote = (text: string) => io.stderr.write(`caisson: ${sanitizeLine(text)}\n`)
  const exported = hostOf(io)
    .exportRun(runId, archive, { onNote })
    .catch((error: unknown) => {
      archive.destroy(error instanceof Error ? error : undefined)
      throw error
    })
  const [first] = (await Promise.allSettled([exported, sent])).filter(({ status }) => status === 'rejected')
  if (first?.status === 'rejected') throw first.reason
}

export async function runsImport(io: Io, file: string, flags: { workspace?: string }): Promise<ExitCode> {
  const workspace = flags.workspace ?? io.directory
  const imported = await hostOf(io).importRun(
    await openFile(file),
    workspace === undefined ? {} : { workspace },
  )
  const { runId, isNew, canContinue, withheld } = imported
  io.stdout.write(isNew ? `imported ${runId}\n` : `${runId} is here already, and is the same\n`)
  const next = canContinue
    ? `continue it: caisson runs resume ${runId}`
    : `show it: caisson runs show ${runId}`
  io.stdout.write(`${next}\n`)
  for (const [server, { env, headers }] of Object.entries(withheld))
    io.stdout.write(
      `To continue it, the MCP server ${sanitizeLine(server)} needs ${sanitizeLine([...env, ...headers].join(', '))}; set them in the configuration${headers.includes('Authorization') ? `, or sign in where it takes sign-ins: caisson mcp login ${sanitizeLine(server)}` : ''}.\n`,
    )
  return exitCodes.completed
}

async function openFile(file: string): Promise<Readable> {
  const handle = await open(file).catch((cause: unknown) => {
    throw new CaissonError('file_not_found', `cannot read ${sanitizeLine(file)}`, {
      cause,
      remedy: 'name a file of caisson runs export',
    })
  })
  return handle.createReadStream()
}
