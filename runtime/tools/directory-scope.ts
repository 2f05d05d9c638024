/** The working directory of a call; its file tools cannot leave it. */
import path from 'node:path'
import * as z from 'zod'
import type { LocateOptions, Root } from '#specs/node/descriptor-walk.ts'
import { failure } from '#specs/node/file-error.ts'
import type { Place } from '#specs/node/place.ts'
import type { Result } from '#specs/protocol/error.ts'
import type { LLMToolContext } from '../contract/contract.ts'
import { withPlaceIn } from './workspace-file.ts'

export const pathParameter = z.string().min(1).max(8_192)

/** Opens `target` below the working directory, runs `action` on it and closes both. */
export async function withinDirectory<T>(
  { workingDirectory }: LLMToolContext,
  target: string,
  locate: LocateOptions,
  action: (place: Place, root: Root) => Result<T> | Promise<Result<T>>,
): Promise<Result<T>> {
  if (workingDirectory === undefined)
    return failure('unavailable', 'there is no working directory: the application gave none with this call')
  return await withPlaceIn({ path: path.resolve(workingDirectory) }, target, locate, action)
}
