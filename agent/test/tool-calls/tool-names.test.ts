import { describe, expect, it } from 'vitest'
import { chooseNames } from '../../tool-calls/registry.ts'

const all = ['edit_file', 'read_file', 'read_output', 'run_bash']

describe('a list of names', () => {
  it('means names and patterns, in the order of the tools; what is taken away stays away unless a later entry gives it back [S4.01]', () => {
    const chosen = (...wanted: string[]) => chooseNames(all, wanted)
    expect(chosen('run_bash', 'read_*')).toEqual({
      ok: true,
      value: ['read_file', 'read_output', 'run_bash'],
    })
    expect(chosen('read_*', '!read_output')).toEqual({ ok: true, value: ['read_file'] })
    expect(chosen('!run_*')).toEqual({ ok: true, value: ['edit_file', 'read_file', 'read_output'] })
    expect(chosen('!*', 'read_file')).toEqual({ ok: true, value: ['read_file'] })
    expect(chosen()).toEqual({ ok: true, value: [] })
  })

  it('is refused when an entry is about nothing, so that a mistake leaves nothing open [S0.04, S4.01]', () => {
    expect(chooseNames(all, ['read_file', 'fly'])).toEqual({ ok: false, error: ['fly'] })
    expect(chooseNames(all, ['!run_bassh'])).toEqual({ ok: false, error: ['!run_bassh'] })
    expect(chooseNames(all, ['github_*'])).toEqual({ ok: false, error: ['github_*'] })
    expect(chooseNames(all, ['!github_*'])).toMatchObject({ ok: true })
  })
})
