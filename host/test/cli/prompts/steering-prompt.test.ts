// A person at a terminal in memory, who says something to a run while it is shown.
import { describe, expect, it } from 'vitest'
import { SteeringPrompt } from '../../../cli/prompts/steering-prompt.ts'
import { ProgressView } from '../../../cli/render/progress.ts'
import type { CancelAgentOptions, SteerOptions } from '../../../control/run-handle.ts'
import { Person } from '../support/person.ts'

function sitDown() {
  const person = new Person()
  // A terminal whose keys come as they are typed.
  Object.assign(person.input, { isTTY: true, setRawMode: () => person.input })
  const stdout = Object.assign(person.output, { isTTY: true })
  const said: string[] = []
  const note = async (line: string): Promise<void> => void said.push(line)
  const run = {
    steer: (text: string, { to }: SteerOptions = {}) =>
      to === 'nobody'
        ? Promise.reject(new Error('no sub-agent nobody is at work'))
        : note(to === undefined ? `steer ${text}` : `steer ${to}: ${text}`),
    cancelAgent: (path: string, { reason }: CancelAgentOptions = {}) => note(`cancel ${path}: ${reason}`),
    pause: () => note('pause'),
    resume: () => note('resume'),
  }
  const io = { stdin: person.input, stdout, stderr: stdout, env: {}, version: '0' }
  const view = new ProgressView(stdout)
  const talk = new SteeringPrompt(io, view, run, () => undefined)
  const leave = () => {
    talk[Symbol.dispose]()
    view.end()
  }
  return Object.assign(person, { talk, said, [Symbol.dispose]: leave })
}

describe('a person who says something to a run', () => {
  it('is offered what can be done now: a hold of an agent at work, the resumption of a paused one [A.08 H.01]', async () => {
    using person = sitDown()
    await person.sees('Enter: message, pause')
    person.talk.setPausing(true)
    await person.sees('Enter: message, resume')
    person.type('\r')
    await person.sees('What now?')
    expect(person.raw).not.toContain('continues meanwhile')
    person.type('2\r')
    await expect.poll(() => person.said).toEqual(['resume'])
    person.talk.setPausing(false)
    await person.sees('Enter: message, pause')
    person.type('\r')
    await person.sees('The agent keeps working. What now?')
    person.type('2\r')
    await expect.poll(() => person.said).toEqual(['resume', 'pause'])
  })

  it.each([
    ['a message', 'Skip the tests, please\r', 'steer Skip the tests, please'],
    ['all lines that come at once', 'line one\r\ny\r\nline three\r', 'steer line one y line three'],
  ])('may type %s in place of a number, sent by one more Enter [A.08 H.01]', async (_, keys, said) => {
    using person = sitDown()
    await person.sees('Enter: message, pause')
    person.type('\r')
    await person.sees('Type 1-3 or Enter')
    person.type('7\r')
    await person.sees('“7” is not an answer here.')
    await new Promise((resolve) => setTimeout(resolve, 1_500))
    person.type(keys)
    await person.sees('What should the agent know?')
    await new Promise((resolve) => setTimeout(resolve, 300))
    expect(person.said).toEqual([])
    person.type('\r')
    await expect.poll(() => person.said).toEqual([said])
  })

  it.each([
    ['@tests/unit skip the slow ones', 'steer tests/unit: skip the slow ones'],
    ['@tests /cancel it repeats itself', 'cancel tests: it repeats itself'],
    ['@tests /cancel', 'cancel tests: '],
    ['@a.md has the rules', 'steer @a.md has the rules'],
    ['ask @tests', 'steer ask @tests'],
  ])('reaches one sub-agent by its path: %s [A.08 H.01]', async (typed, said) => {
    using person = sitDown()
    await person.sees('Enter: message, pause')
    person.type(`${typed}\r`)
    await person.sees('What should the agent know?')
    await new Promise((resolve) => setTimeout(resolve, 300))
    person.type('\r')
    await expect.poll(() => person.said).toEqual([said])
  })

  it('keeps a message that is refused, to be corrected and sent again [A.08 H.01]', async () => {
    using person = sitDown()
    await person.sees('Enter: message, pause')
    person.type('@nobody stop\r')
    await person.sees('What should the agent know?')
    await new Promise((resolve) => setTimeout(resolve, 300))
    person.type('\r')
    await person.sees('Not done: no sub-agent nobody is at work')
    await person.sees('Enter: message “@nobody stop”, pause')
    person.type('\r')
    await new Promise((resolve) => setTimeout(resolve, 300))
    person.type(', all\r')
    await new Promise((resolve) => setTimeout(resolve, 300))
    expect(person.said).toEqual([])
    expect(person.raw).toContain('@nobody stop, all')
  })

  it('is offered nothing any more when the run is being cancelled [A.08]', async () => {
    using person = sitDown()
    await person.sees('Enter: message, pause')
    person.type('wait')
    await person.sees('“wait”')
    person.talk.end()
    const before = person.raw.length
    person.type('\r')
    person.talk.listen()
    await expect.poll(() => person.raw.length).toBeGreaterThan(before + 200)
    expect(person.raw.slice(before)).not.toContain('Enter:')
    expect(person.raw.slice(before)).not.toContain('What')
    expect(person.said).toEqual([])
  })

  it('sends nothing by an Enter that came before the line was there to be sent [A.08 H.01]', async () => {
    using person = sitDown()
    await person.sees('Enter: message, pause')
    person.type('y\r')
    person.type('\r')
    await person.sees('What should the agent know?')
    person.type(', and the tests')
    await person.sees('and the tests')
    expect(person.said).toEqual([])
    person.type('\r')
    await expect.poll(() => person.said).toEqual(['steer y, and the tests'])
  })

  it('sees what they type in the status line, with what they deleted, until Enter opens the prompt with it [A.08 H.01]', async () => {
    using person = sitDown()
    await person.sees('Enter: message, pause')
    person.type('use tabz')
    await person.sees('Enter: message “use tabz”, pause')
    person.type('\u007fs\u001b[A')
    await person.sees('Enter: message “use tabs”, pause')
    person.type('\r')
    await person.sees('What should the agent know?')
    expect(person.raw).toContain('use tabs')
    person.type('\r')
    await expect.poll(() => person.said).toEqual(['steer use tabs'])
    await person.sees('Enter: message, pause')
  })
})
