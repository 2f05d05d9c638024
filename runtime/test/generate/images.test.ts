// Images of an application: each provider's form of them, against a server on loopback, and what is refused before.
import { describe, expect, it } from 'vitest'
import { imagesMaxCount } from '#specs/protocol/image.ts'
import { dataUrl, jpeg, png } from '#specs/testing/images.ts'
import type { LLMChatMessage } from '../../contract/contract.ts'
import { askKind, readGolden } from '../providers/support.ts'

const picture = dataUrl('image/png', png(640, 480))
const photo = dataUrl('image/jpeg', jpeg(640, 480))
const answered =
  'data: {"choices":[{"delta":{"content":"A cat."},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
const base64 = (url: string) => url.slice(url.indexOf(',') + 1)
const messages: LLMChatMessage[] = [
  { role: 'user', content: 'Before:', images: [picture] },
  { role: 'user', content: 'After:', images: [photo] },
]

describe('images of a message', () => {
  it('reach a server of chat completions behind their texts, also where its model is unknown', async () => {
    const { asked } = await askKind('openai', [{ body: answered }], { messages })
    expect(asked[0]?.body).toMatchObject({
      messages: [
        {
          role: 'user',
          content: [
            { type: 'text', text: 'Before:' },
            { type: 'image_url', image_url: { url: picture } },
            { type: 'text', text: 'After:' },
            { type: 'image_url', image_url: { url: photo } },
          ],
        },
      ],
    })
  })

  it('reach Anthropic and Google in the form of each', async () => {
    const anthropic = await askKind('anthropic', [{ body: readGolden('anthropic-tools.sse') }], { messages })
    expect(anthropic.asked[0]?.body).toMatchObject({
      messages: [
        {
          role: 'user',
          content: [
            { type: 'text', text: 'Before:' },
            { type: 'image', source: { type: 'base64', media_type: 'image/png', data: base64(picture) } },
            { type: 'text', text: 'After:' },
            { type: 'image', source: { type: 'base64', media_type: 'image/jpeg', data: base64(photo) } },
          ],
        },
      ],
    })
    const google = await askKind('google', [{ body: readGolden('google-tools.sse') }], { messages })
    expect(google.asked[0]?.body).toMatchObject({
      contents: [
        {
          role: 'user',
          parts: [
            { text: 'Before:' },
            { inlineData: { mimeType: 'image/png', data: base64(picture) } },
            { text: 'After:' },
            { inlineData: { mimeType: 'image/jpeg', data: base64(photo) } },
          ],
        },
      ],
    })
  })

  it('are not left out when the server refuses them: the application gets its error', async () => {
    const message = 'Invalid content type. image_url is only supported by certain models.'
    const refusal = { status: 400, body: JSON.stringify({ error: { message } }) }
    const { answer, asked } = await askKind('openai', [refusal, { body: answered }], { messages })
    expect(answer).toMatchObject({ ok: false, error: { message: expect.stringContaining(message) } })
    expect(asked).toHaveLength(1)
  })

  it('are refused by their place when nothing could see them, before anything is sent', async () => {
    const refused: [unknown, string][] = [
      [
        [{ role: 'user', content: '', images: ['https://example.com/a.png'] }],
        'messages[0].images[0]: an image must',
      ],
      [[{ role: 'user', content: '', images: [picture, 7] }], 'messages[0].images[1]: expected a data URL'],
      [[{ role: 'user', content: '', images: picture }], 'messages[0].images: expected a list'],
      [[{ role: 'system', content: '', images: [picture] }], 'messages[0]: images belong'],
      [
        [{ role: 'user', content: '', images: Array.from({ length: imagesMaxCount + 1 }, () => picture) }],
        `messages[0].images[${imagesMaxCount}]: a request may have`,
      ],
    ]
    for (const [wrong, said] of refused) {
      const { answer, asked } = await askKind('openai', [], { messages: wrong as LLMChatMessage[] })
      expect(answer).toMatchObject({
        ok: false,
        error: { code: 'invalid_options', message: expect.stringContaining(said) },
      })
      expect(asked).toEqual([])
    }
  })
})
