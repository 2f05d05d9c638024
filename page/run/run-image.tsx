/**
 * Images that the model looked at. They are fetched with the token and drawn on a canvas: the policy of the page lets no
 * element load them, and needs no exception for them.
 */
import { useEffect, useRef, useState } from 'preact/hooks'
import { type ImageRef, nameOfType } from '#specs/protocol/image.ts'
import { ServiceError } from '../../client/index.ts'
import { Dialog, Failure } from '../parts/parts.tsx'
import { bytes, visible, visibleLine } from '../parts/text.ts'
import { useSession } from '../session/session.ts'

export interface ShownImage {
  /** Its path, as the person or the model wrote it. */
  readonly name: string
  readonly image: ImageRef
}

/** What each image of a run needs. */
export interface RunImages {
  readonly run: string
  /** Whether the run is at work, so that its recording may get the image later. */
  readonly isLive: boolean
  readonly onEnlarge: (shown: ShownImage) => void
}

/** Pixels of the longer side on a screen with two pixels for one; the style shows it smaller. */
const thumbnailPixels = 480
const enlargedPixels = 2_048

const retryFirstMs = 1_000
const retryLongestMs = 30_000

/** One image in the log: small, with its format and size; a button shows it larger. */
export function Thumbnail({ shown, run, isLive, onEnlarge }: { readonly shown: ShownImage } & RunImages) {
  const [failed, setFailed] = useState<string>()
  const { blob, problem = failed } = useImage(run, shown.image.sha256, isLive)
  const words = describeShown(shown)
  return (
    <figure class="shown-image">
      {problem === undefined && (
        <button type="button" class="plain" aria-label={`Enlarge ${words}`} onClick={() => onEnlarge(shown)}>
          <Drawing blob={blob} maxPixels={thumbnailPixels} onFailed={setFailed} label={words} />
        </button>
      )}
      <figcaption class="hint">
        {words}
        {problem !== undefined && <> · {visible(problem)}</>}
      </figcaption>
    </figure>
  )
}

export function ImageDialog({
  shown,
  run,
  onClose,
}: {
  readonly shown: ShownImage
  readonly run: string
  readonly onClose: () => void
}) {
  const [failed, setFailed] = useState<string>()
  const { blob, problem = failed } = useImage(run, shown.image.sha256, false)
  const words = describeShown(shown)
  return (
    <Dialog title="Image of the run" onClose={onClose}>
      <figure class="enlarged-image">
        {problem === undefined ? (
          <Drawing blob={blob} maxPixels={enlargedPixels} onFailed={setFailed} label={words} />
        ) : (
          <Failure text={problem} />
        )}
        <figcaption class="hint">{words}</figcaption>
      </figure>
    </Dialog>
  )
}

/** Such as `chart.png: PNG, 640 × 480 pixels, 10 KiB`. */
function describeShown({ name, image: { type, width, height, sizeBytes } }: ShownImage): string {
  return `${visibleLine(name, 200)}: ${nameOfType(type)}, ${width} × ${height} pixels, ${bytes(sizeBytes)}`
}

function Drawing({
  blob,
  maxPixels,
  onFailed,
  label,
}: {
  readonly blob: Blob | undefined
  readonly maxPixels: number
  readonly onFailed: (problem: string) => void
  readonly label: string
}) {
  const ref = useRef<HTMLCanvasElement>(null)
  useEffect(() => {
    if (blob === undefined) return
    let isGone = false
    createImageBitmap(blob)
      .then((bitmap) => {
        if (!isGone && ref.current !== null) draw(bitmap, ref.current, maxPixels)
        bitmap.close()
      })
      .catch(() => {
        if (!isGone) onFailed('The browser cannot show it: the image is damaged')
      })
    return () => {
      isGone = true
    }
  }, [blob, maxPixels])
  return <canvas ref={ref} role="img" aria-label={label} />
}

/** Reduces it to the longest side, and enlarges nothing. */
function draw(bitmap: ImageBitmap, canvas: HTMLCanvasElement, maxPixels: number): void {
  const scale = Math.min(1, maxPixels / Math.max(bitmap.width, bitmap.height))
  canvas.width = Math.max(1, Math.round(bitmap.width * scale))
  canvas.height = Math.max(1, Math.round(bitmap.height * scale))
  canvas.getContext('2d')?.drawImage(bitmap, 0, 0, canvas.width, canvas.height)
}

/** The bytes, or why they are not there. The journal names an image before the recording of a run at work has it. */
function useImage(
  run: string,
  image: string,
  isLive: boolean,
): { readonly blob?: Blob; readonly problem?: string } {
  const { client, fail } = useSession()
  const [found, setFound] = useState<{ blob?: Blob; problem?: string }>({})
  useEffect(() => {
    const ending = new AbortController()
    const { signal } = ending
    let timer: ReturnType<typeof setTimeout> | undefined
    const load = async (waitMs: number): Promise<void> => {
      try {
        setFound({ blob: await client.call('getImage', { params: { run, image }, signal }) })
      } catch (error) {
        if (signal.aborted) return
        const isMissing = error instanceof ServiceError && error.code === 'file_not_found'
        const missing = isLive ? 'The model has not been asked with it yet' : 'The recording does not have it'
        setFound({ problem: isMissing ? missing : fail(error) })
        if (isMissing && isLive)
          timer = setTimeout(() => void load(Math.min(2 * waitMs, retryLongestMs)), waitMs)
      }
    }
    void load(retryFirstMs)
    return () => {
      ending.abort()
      clearTimeout(timer)
    }
  }, [run, image, isLive])
  return found
}
