// Images of the task: what the model gets with the first message of each request.
import { describe, expect, it } from 'vitest'
import { dataUrl, png } from '#specs/testing/images.ts'
import { plannerOpening, stepOpening } from '../../context/opening.ts'
import { someStep } from '../support/one-step.ts'
import { makeRun } from '../support/run.ts'

const url = dataUrl('image/png', png(640, 480))
const image = { sha256: '0'.repeat(64), type: 'image/png', width: 640, height: 480, sizeBytes: 57 } as const

describe('images of the task', () => {
  it('are behind the text that names them, in planning and in each step [G.09]', () => {
    const { run } = makeRun({ model: () => Promise.reject(new Error('not asked')) })
    const images = [
      { name: 'mockup.png', image, url },
      { name: 'gone.png', problem: 'there is none' },
    ]
    const plan = { goal: 'g', steps: [someStep] }
    const openings = [
      plannerOpening({ ...run, images }),
      stepOpening({ ...run, images }, { plan, step: someStep, results: [] }),
    ]
    for (const [, user] of openings) {
      expect(user).toMatchObject({ role: 'user', images: [url] })
      expect(user?.content).toContain('- mockup.png: PNG image, 640x480 pixels, 57 bytes')
      expect(user?.content).toContain('- gone.png: cannot be shown: there is none')
    }
    expect(plannerOpening(run)[1]).not.toHaveProperty('images')
  })
})
