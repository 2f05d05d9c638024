/** Checks the images of a request of the application before anything is sent. */
import { CaissonError } from '#specs/errors.ts'
import { imagesMaxBytes, imagesMaxCount, readImageUrl } from '#specs/protocol/image.ts'

/** @throws {CaissonError} `invalid_options`, with the place of the image */
export function checkImages(messages: readonly unknown[]): void {
  let count = 0
  let bytes = 0
  for (const [at, message] of messages.entries()) {
    const { role, images } = Object(message) as { role?: unknown; images?: unknown }
    if (images === undefined) continue
    if (role !== 'user') throw refusal(`messages[${at}]: images belong to messages of the user`)
    if (!Array.isArray(images)) throw refusal(`messages[${at}].images: expected a list of data URLs`)
    for (const [index, url] of images.entries()) {
      const place = `messages[${at}].images[${index}]`
      if (typeof url !== 'string') throw refusal(`${place}: expected a data URL`)
      const image = readImageUrl(url)
      if (!image.ok) throw refusal(`${place}: ${image.error}`)
      count += 1
      bytes += image.value.sizeBytes
      if (count > imagesMaxCount || bytes > imagesMaxBytes)
        throw refusal(
          `${place}: a request may have ${imagesMaxCount} images and ${imagesMaxBytes} bytes of them; leave out older ones`,
        )
    }
  }
}

function refusal(message: string): CaissonError {
  return new CaissonError('invalid_options', message)
}
