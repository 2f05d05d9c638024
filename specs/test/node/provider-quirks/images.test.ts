import { describe, expect, it } from 'vitest'
import type { CompletionMessage, CompletionPart } from '#specs/protocol/completion-request.ts'
import { imagesMaxCount } from '#specs/protocol/image.ts'
import { Adaptation } from '../../../node/provider-quirks/adaptation.ts'
import { dataUrl, png } from '../../../testing/images.ts'

const picture: CompletionPart = {
  type: 'image_url',
  image_url: { url: dataUrl('image/png', png(640, 480)) },
}
const question: CompletionMessage = {
  role: 'user',
  content: [{ type: 'text', text: 'What is this?' }, picture],
}

function send(
  model: string,
  messages: CompletionMessage[],
): { messages: CompletionMessage[]; max_tokens: number } {
  return JSON.parse(new Adaptation(model).build({ messages }).body)
}

describe('images of a request', () => {
  it('reach a model that sees', () => {
    for (const model of [
      'nvidia/nemotron-3.5-super-vl-120b-a12b',
      'gpt-4o',
      'claude-sonnet-4-5',
      'gemini-2.5-pro',
    ]) {
      expect(send(model, [question]).messages).toEqual([question])
    }
  })

  it('are a note with type, dimensions and size for a model that does not see', () => {
    for (const model of ['nvidia/nemotron-3-super-120b-a12b', 'unknown/model']) {
      expect(send(model, [question]).messages).toEqual([
        {
          role: 'user',
          content: expect.stringMatching(
            /^What is this\?\n\n\[Image left out \(image\/png, 640x480, \d+ bytes\)/,
          ),
        },
      ])
    }
  })

  it('are notes where newer ones fill the request', () => {
    const content = Array.from({ length: imagesMaxCount + 2 }, () => picture)
    const [sent] = send('gpt-4o', [{ role: 'user', content }]).messages
    const types = Array.isArray(sent?.content) ? sent.content.map(({ type }) => type) : []
    expect(types).toEqual(['text', 'text', ...Array.from({ length: imagesMaxCount }, () => 'image_url')])
  })

  it('are one for a model that takes one', () => {
    const [sent] = send('meta/llama-3.2-90b-vision-instruct', [
      { role: 'user', content: [picture, picture] },
    ]).messages
    expect(sent?.content).toEqual([{ type: 'text', text: expect.stringContaining('newer images') }, picture])
  })

  it('are notes from then on where a server refuses them, and as many as it takes where it has a number', () => {
    const adaptation = new Adaptation('gpt-4o')
    const sent = (): number => {
      const { messages } = JSON.parse(
        adaptation.build({ messages: [{ role: 'user', content: [picture, picture] }] }).body,
      ) as { messages: CompletionMessage[] }
      const content = messages[0]?.content
      return Array.isArray(content) ? content.filter(({ type }) => type === 'image_url').length : 0
    }
    const refuse = (message: string): boolean => {
      const rejection = adaptation.readRejection(400, JSON.stringify({ error: { message } }))
      return rejection !== null && adaptation.adapt(rejection)
    }
    expect(sent()).toBe(2)
    expect(refuse('At most 1 image(s) may be provided in one prompt.')).toBe(true)
    expect(sent()).toBe(1)
    expect(refuse('image input is not supported by this server')).toBe(true)
    expect(sent()).toBe(0)
    expect(adaptation.learned).toEqual({ maxImages: 0 })
    // Without images in the request the words mean something else.
    expect(refuse('image input is not supported by this server')).toBe(false)
  })

  it('stay in order when messages of the user are merged', () => {
    const [sent, ...others] = send('gpt-4o', [{ role: 'user', content: 'Look:' }, question]).messages
    expect(others).toEqual([])
    expect(sent?.content).toEqual([
      { type: 'text', text: 'Look:' },
      ...(question.content as CompletionPart[]),
    ])
  })

  it('count by their dimensions, not by their characters', () => {
    const bytes = Buffer.concat([
      png(640, 480).subarray(0, 33),
      Buffer.alloc(900_000),
      png(1, 1).subarray(-12),
    ])
    const large: CompletionPart = { type: 'image_url', image_url: { url: dataUrl('image/png', bytes) } }
    const sent = send('nvidia/nemotron-3.5-super-vl-120b-a12b', [{ role: 'user', content: [large] }])
    expect(sent.max_tokens).toBe(16_384)
  })
})
