// What a conversation makes of the lines of a person; the commands that it runs are recorded, not run.
import { describe, expect, it } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { Conversation, converse } from '../../../cli/commands/chat.ts'
import { runAtWork } from '../../support/run-at-work.ts'
import { runId } from '../../support/run-values.ts'
import { besideFleet } from '../support/fleet-stand-in.ts'
import { Person } from '../support/person.ts'
import { resource, version } from '../support/stand-in.ts'

async function sitDown(last?: string, env: Readonly<Record<string, string | undefined>> = {}) {
  const person = new Person({ columns: 120, rows: 40 })
  Object.assign(person.input, { isTTY: true, setRawMode: () => person.input })
  const stdout = Object.assign(person.output, { isTTY: true })
  const home = await temporaryFolder('chat')
  const io = {
    stdin: person.input,
    stdout,
    stderr: stdout,
    env: { HOME: home, CAISSON_HOME: home, ...env },
    version: '0',
  }
  const ran: string[][] = []
  const within: unknown[] = []
  const run = (argv: readonly string[], given?: unknown): Promise<number> => {
    ran.push([...argv])
    within.push(given)
    return Promise.resolve(0)
  }
  const conversation = new Conversation(
    io,
    ['--ram', '512M'],
    {
      ...{ workspace: '/w', addDir: ['a=/x', '-y'], last },
      ...{ effort: 'high', fallback: ['one', '-two'], envFile: '-e' },
    },
    run,
  )
  const ended = conversation.hold()
  const say = async (line: string): Promise<void> => {
    await person.sees('caisson> ')
    person.type(`${line}\r`)
  }
  return { person, ran, within, ended, say }
}

describe('a conversation', () => {
  it('makes each task a run with a kept VM and the options of the conversation [H.01]', async () => {
    const { ran, ended, say } = await sitDown(undefined, { CAISSON_LLM_URL: 'http://127.0.0.1:9/v1' })
    await say('-n is a flag; what for?')
    await say('/model big')
    await say('/approvals none')
    await say('/plan Port it')
    await say('exit')
    await ended
    expect(ran).toHaveLength(2)
    expect(ran[0]?.slice(0, 4)).toEqual(['run', '-w', '/w', '--keep-vm'])
    expect(ran[0]?.slice(-4)).toEqual(['--ram', '512M', '--', '-n is a flag; what for?'])
    const joined = ['--add-dir=a=/x', '--add-dir=-y', '--effort=high', '--fallback=one', '--fallback=-two']
    expect(ran[0]).toEqual(expect.arrayContaining([...joined, '--env-file=-e']))
    expect(ran[1]).toEqual(
      expect.arrayContaining(['-m', 'big', '--approve', 'none', '--plan-only', 'Port it']),
    )
  })

  it('follows the run that it continues to its end first, where another process still carries it out [H.01 V.08]', async () => {
    const run = await runAtWork()
    const { person, ran, ended, say } = await sitDown(runId, run.env)
    await say('/quit')
    await ended
    expect(ran).toEqual([['attach', runId]])
    expect(person.raw).toContain(`Come back: caisson chat --continue ${runId}`)
  })

  it('finds the run of a fleet that it continues, and follows it to its end first, whichever host has it [H.01 V.08]', async () => {
    let end: unknown = null
    const { env } = await besideFleet((_, asked) =>
      asked === `/v1/runs/${runId}` ? [200, { ...resource, host: null, end }] : undefined,
    )
    const person = new Person({ columns: 120, rows: 40 })
    Object.assign(person.input, { isTTY: true, setRawMode: () => person.input })
    const stdout = Object.assign(person.output, { isTTY: true })
    const io = { stdin: person.input, stdout, stderr: stdout, env, version }
    const ran: string[][] = []
    const held = async () => {
      const seen = person.raw.length
      const ended = converse(io, [], { continue: runId }, async (argv) => ran.push([...argv]))
      await expect.poll(() => person.raw.slice(seen)).toContain('caisson> ')
      person.type('/quit\r')
      await ended
    }
    await held()
    expect(ran).toEqual([['attach', runId]])
    expect(person.raw).toContain(`Come back: caisson chat --continue ${runId}`)
    end = { outcome: 'completed', reason: 'completed', message: '' }
    await held()
    expect(ran).toHaveLength(1)
  })

  it('continues the run that it is given, and runs commands on it [H.01]', async () => {
    const { person, ran, ended, say } = await sitDown('run-0123')
    await say('carry on')
    await say('/diff a.txt')
    await say('/apply')
    await say('/merge b.txt')
    await say('/plan More')
    await say('/undo')
    await say('/approvals')
    await person.sees('caisson> ')
    person.type('\u0004')
    await ended
    expect(ran[0]).toEqual(expect.arrayContaining(['--continue', 'run-0123', 'carry on']))
    expect(ran[4]).toEqual(expect.arrayContaining(['--plan-only', 'More']))
    expect(ran.toSpliced(4, 1).slice(1)).toEqual([
      ['workspace', 'diff', 'run-0123', 'a.txt'],
      ['workspace', 'apply', 'run-0123', '--all'],
      ['workspace', 'merge', 'run-0123', 'b.txt'],
      ['workspace', 'undo', 'run-0123'],
      ['approvals', 'list'],
      ['policy', 'revoke'],
    ])
    expect(person.raw).toContain('Come back: caisson chat --continue run-0123')
  })

  it('names the model and what else is configured, and answers given so far [H.01]', async () => {
    const { person, ran, within, ended, say } = await sitDown()
    await say('/model')
    await say('/model big')
    await say('/approvals')
    await say('/run')
    await say('/exit')
    await ended
    expect(person.raw).toContain('Model: caisson/offline (offline)')
    expect(person.raw).toContain('To use another from the next task on: /model ID')
    expect(person.raw).toContain('No model server is set for the model "big"')
    expect(person.raw).toContain('No approval was answered in this conversation.')
    expect(person.raw).toContain('There is no plan to run. Make one: /plan TASK')
    expect(ran).toEqual([
      ['approvals', 'list'],
      ['policy', 'revoke'],
    ])
    // Its lines name commands of the conversation.
    expect(within).toEqual([{ conversation: { told: new Set() } }, { conversation: { told: new Set() } }])
  })

  it('runs nothing for a command that it does not have, or before the first task [H.01]', async () => {
    const { person, ran, ended, say } = await sitDown()
    for (const line of ['/aply', '/diff', '/approvals maybe', '/help']) await say(line)
    await person.sees('caisson> ')
    person.type('\u0003')
    await say('/quit')
    await ended
    for (const text of [
      'no command /aply',
      'No task has run',
      'Expected: /approvals ask',
      '/apply [PATH...]',
      'Ctrl-D or /quit',
    ])
      expect(person.raw).toContain(text)
    expect(ran).toEqual([])
  })
})
