import { setTimeout as sleep } from 'node:timers/promises'
import { execa } from 'execa'
import { describe, expect, it } from 'vitest'
import { IdleHibernation, isAtWork, type Sleeper } from '../../../runs/guest/idle-hibernation.ts'

const AFTER_MS = 20
/** Long enough for a hibernation to begin. */
const LATER_MS = 120

class World implements Sleeper {
  readonly log: string[] = []
  busy = false
  refuses = false
  slow: Promise<void> = Promise.resolve()
  readonly hibernation = new IdleHibernation(this, AFTER_MS, (cause) =>
    this.log.push(`lost ${String(cause)}`),
  )
  isBusy(): boolean {
    return this.busy
  }
  async sleep(): Promise<void> {
    this.log.push('sleep')
    await this.slow
    if (this.refuses) throw new Error('no space')
  }
  async wake(): Promise<void> {
    this.log.push('wake')
  }
}

describe('a run that waits for a person', () => {
  it('sleeps after its time and wakes with the answer [V.04]', async () => {
    const world = new World()
    world.hibernation.hold(1)
    expect(world.log).toEqual([])
    await sleep(LATER_MS)
    expect(world.log).toEqual(['sleep'])
    world.hibernation.hold(-1)
    await world.hibernation.wake()
    expect(world.log).toEqual(['sleep', 'wake'])
    await world.hibernation.end()
  })

  it('stays awake when the answer is quick, and while others work [V.04]', async () => {
    const world = new World()
    world.hibernation.hold(1)
    world.hibernation.hold(-1)
    world.busy = true
    world.hibernation.hold(1)
    await sleep(LATER_MS)
    expect(world.log).toEqual([])
    world.busy = false
    await sleep(LATER_MS)
    expect(world.log).toEqual(['sleep'])
    await world.hibernation.end()
  })

  it('does not sleep while a tool is at work that nobody is asked about [V.04]', () => {
    const call = { stepId: 's', tool: 'run_bash', agentPath: 'root' }
    const request = { approvalId: 'ap-1', agentPath: 'root', stepId: 's', callId: 'c1', tool: 'delete_file' }
    const pendingApprovals = {
      'ap-1': { ...request, arguments: '{}', preview: '', kind: 'cooperative' as const },
    }
    expect(isAtWork({ openCalls: { c1: call }, pendingApprovals })).toBe(false)
    expect(isAtWork({ openCalls: { c1: call, c2: call }, pendingApprovals })).toBe(true)
    // The program waits with its call.
    const inner = { ...call, parentCallId: 'c2' }
    expect(isAtWork({ openCalls: { c1: inner, c2: call }, pendingApprovals })).toBe(false)
    expect(isAtWork({ openCalls: { c1: inner, c2: call, c3: inner }, pendingApprovals })).toBe(true)
  })

  it('wakes with the first answer of several, and sleeps again while the others wait [V.04]', async () => {
    const world = new World()
    world.hibernation.hold(1)
    world.hibernation.hold(1)
    await sleep(LATER_MS)
    expect(world.log).toEqual(['sleep'])
    world.hibernation.hold(-1)
    await sleep(LATER_MS)
    expect(world.log).toEqual(['sleep', 'wake', 'sleep'])
    world.hibernation.hold(-1)
    await world.hibernation.wake()
    expect(world.log).toEqual(['sleep', 'wake', 'sleep', 'wake'])
    await world.hibernation.end()
  })

  it.each([
    ['after an answer that came while it was being saved', 1],
    ['when one of two questions is answered while it is being saved', 2],
  ])('wakes %s [V.04]', async (_, questions) => {
    const world = new World()
    const saved = Promise.withResolvers<void>()
    world.slow = saved.promise
    for (let held = 0; held < questions; held += 1) world.hibernation.hold(1)
    await sleep(LATER_MS)
    world.hibernation.hold(-1)
    const awake = world.hibernation.wake()
    saved.resolve()
    await awake
    expect(world.log).toEqual(['sleep', 'wake'])
    await world.hibernation.end()
  })

  it('keeps its process alive while the VM sleeps, and no longer [V.04]', async () => {
    const script = `
      import { IdleHibernation } from '${import.meta.resolve('../../../runs/guest/idle-hibernation.ts')}'
      const hibernation = new IdleHibernation({ isBusy: () => false, sleep: async () => {}, wake: async () => console.log('wake') }, 10, () => {})
      hibernation.hold(1)
      setTimeout(() => {}, 100)
      setTimeout(() => hibernation.hold(-1), 300).unref()`
    const { stdout } = await execa(process.execPath, ['--input-type=module', '-e', script], {
      nodeOptions: ['--conditions=caisson-source'],
      timeout: 15_000,
    })
    expect(stdout).toBe('wake')
  })

  it('tries again when the VM could not be saved, and never wakes what did not sleep [V.04]', async () => {
    const world = new World()
    world.refuses = true
    world.hibernation.hold(1)
    await expect.poll(() => world.log.length).toBeGreaterThan(1)
    world.hibernation.hold(-1)
    await world.hibernation.end()
    expect(world.log).not.toContain('wake')
  })
})
