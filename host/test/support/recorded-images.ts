/** Runs whose model was asked with images. */
import { dataUrl } from '#specs/testing/images.ts'
import { gatewayError } from '../../net/gateway-error.ts'
import { Recorder } from '../../recording/recorder.ts'

/** Adds images to a recording, as the recorder of a run does. @param file its path */
export async function recordImages(
  file: string,
  runId: string,
  images: readonly (readonly [type: string, bytes: Uint8Array])[],
): Promise<void> {
  await using recorder = await Recorder.open(file, {
    ...{ version: 1, runId, model: 'm', provider: 'offline', at: 1 },
  })
  const server = recorder.wrap(
    {
      send: async () => ({ ok: false, error: gatewayError('upstream_unreachable', 'no server') }),
      close: async () => undefined,
    },
    [],
  )
  const content = images.map(([type, bytes]) => ({
    type: 'image_url' as const,
    image_url: { url: dataUrl(type, bytes) },
  }))
  const { signal } = new AbortController()
  await server.send({ messages: [{ role: 'user', content }] }, { maxTokens: 1, signal })
}
