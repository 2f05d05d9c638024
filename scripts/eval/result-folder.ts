/** The folder of an evaluation: `evaluation.json`, a line in `attempts.jsonl` for each attempt, and the report. */
import { existsSync, readFileSync, statSync } from 'node:fs'
import { appendFile, mkdir, readdir, readFile, truncate, writeFile } from 'node:fs/promises'
import path from 'node:path'
import * as z from 'zod'
import { toJsonLine, toPlainJson } from '../../host/cli/render/json-lines.ts'
import { CaissonError } from '../../host/index.ts'
import { takeLock } from '../../host/locks/file-lock.ts'
import { Attempt, readAttempts } from './attempts.ts'
import { describeHeader, Header } from './header.ts'
import { renderSummary, renderTasks } from './render.ts'
import { summarize } from './report.ts'

export interface Results {
  readonly header: Header
  readonly attempts: readonly Attempt[]
}

const Report = z.object({ header: Header, attempts: z.array(Attempt) })

/** An evaluation that this process works on; no other one does meanwhile. */
export class ResultFolder implements AsyncDisposable {
  readonly folder: string
  readonly header: Header
  readonly attempts: Attempt[]
  readonly #lock: AsyncDisposable

  private constructor(folder: string, { header, attempts }: Results, lock: AsyncDisposable) {
    this.folder = folder
    this.header = header
    this.attempts = [...attempts]
    this.#lock = lock
  }

  /** @throws {CaissonError} `invalid_options` for a folder that has something in it */
  static async create(folder: string, header: Header): Promise<ResultFolder> {
    await mkdir(folder, { recursive: true })
    if ((await readdir(folder)).length > 0)
      throw new CaissonError('invalid_options', `${folder} is not empty`, {
        remedy: 'name a new folder, or continue the evaluation in it with --resume',
      })
    const lock = await takeLock(path.join(folder, 'lock'))
    await writeFile(attemptsOf(folder), '')
    await writeFile(headerOf(folder), toPlainJson(header))
    return new ResultFolder(folder, { header, attempts: [] }, lock)
  }

  /** Continues an evaluation whose process ended. @throws {CaissonError} as {@link readResults}; while another process has it */
  static async open(folder: string): Promise<ResultFolder> {
    if (!existsSync(headerOf(folder))) throw noEvaluation(folder)
    const lock = await takeLock(path.join(folder, 'lock'))
    try {
      const results = readResults(folder)
      await cutLastLine(attemptsOf(folder))
      return new ResultFolder(folder, results, lock)
    } catch (error) {
      await lock[Symbol.asyncDispose]()
      throw error
    }
  }

  async add(attempt: Attempt): Promise<void> {
    this.attempts.push(attempt)
    await appendFile(attemptsOf(this.folder), toJsonLine(attempt), { flush: true })
  }

  /** Writes `report.md` and `report.json`. */
  async report(): Promise<{ readonly markdown: string; readonly json: string }> {
    const { header, attempts } = this
    const markdown = renderReport(this)
    const json = toPlainJson({ header, summary: summarize(attempts), attempts })
    await writeFile(path.join(this.folder, 'report.md'), markdown)
    await writeFile(path.join(this.folder, 'report.json'), json)
    return { markdown, json }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#lock[Symbol.asyncDispose]()
  }
}

const headerOf = (folder: string): string => path.join(folder, 'evaluation.json')
const attemptsOf = (folder: string): string => path.join(folder, 'attempts.jsonl')

/** Of a folder, or of its `report.json` elsewhere. @throws {CaissonError} `invalid_options` for none, or a damaged one */
export function readResults(place: string): Results {
  try {
    const isFolder = statSync(place).isDirectory()
    if (!isFolder) return Report.parse(JSON.parse(readFileSync(place, 'utf8')))
    const header = Header.parse(JSON.parse(readFileSync(headerOf(place), 'utf8')))
    return { header, attempts: readAttempts(attemptsOf(place)) }
  } catch (error) {
    throw noEvaluation(place, error)
  }
}

function noEvaluation(place: string, cause?: unknown): CaissonError {
  const why = cause instanceof TypeError ? `: ${cause.message}` : ''
  return new CaissonError('invalid_options', `${place} has no evaluation${why}`, {
    remedy: 'name a folder that an evaluation wrote, or its report.json',
    ...(cause === undefined ? {} : { cause }),
  })
}

/** A stopped process may have left a part of a line; the next line has to begin on its own. */
async function cutLastLine(file: string): Promise<void> {
  const bytes = await readFile(file)
  await truncate(file, bytes.lastIndexOf('\n') + 1)
}

export const offlineWarning =
  'The offline model answers: it knows a small set of requests and fails most tasks. For a real model, set a key as for `caisson run`.'

function renderReport({ header, attempts }: Results): string {
  const models = [...new Set(attempts.map(({ model }) => model))]
  const missing = header.tasks.length * header.tries - attempts.length
  return [
    `Evaluation: ${describeHeader(header)}`,
    '',
    ...(header.provider === 'offline' ? [offlineWarning, ''] : []),
    ...(models.length > 1 || (header.model === null && models.length > 0)
      ? [`Models: ${models.join(', ')}`, '']
      : []),
    ...(missing === 0 ? [] : [`Attempts that are missing: ${missing}.`, '']),
    renderSummary(attempts),
    renderTasks(attempts),
  ].join('\n')
}
