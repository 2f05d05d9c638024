/** What a person chooses for a session: its mode, model and effort, as modes and as configuration options. */
import type { SessionConfigOption, SessionModeState } from '@agentclientprotocol/sdk'
import * as z from 'zod'
import type { Config, Effort } from '../index.ts'

export const Mode = z.enum(['ask', 'plan', 'apply'])
export type Mode = z.infer<typeof Mode>

const modes: Readonly<Record<Mode, { readonly name: string; readonly description: string }>> = {
  ask: { name: 'Ask', description: 'Work in a VM, then ask whether to apply the changes' },
  plan: { name: 'Plan only', description: 'Make a plan and change nothing' },
  apply: {
    name: 'Apply',
    description: 'Work in a VM, then apply the changes but flagged paths and conflicts',
  },
}

const efforts: Readonly<Record<Effort, string>> = {
  none: 'None',
  low: 'Low',
  medium: 'Medium',
  high: 'High',
}

/** The value that leaves a choice to the configuration. */
const unset = 'default'

export interface SessionSettings {
  readonly mode: Mode
  /** Absent: as configured. */
  readonly model?: string
  readonly effort?: Effort
}

export interface ModelChoices {
  /** Of a run that names none; empty where the server decides. */
  readonly byDefault: string
  /** Further ones of the configuration. */
  readonly others: readonly string[]
}

export const firstSettings: SessionSettings = { mode: 'ask' }

export function modelChoices(config: Config, byDefault: string): ModelChoices {
  const { fallback = [], stepModels = [], providers } = config
  const named = [
    ...fallback,
    ...(Array.isArray(stepModels) ? (stepModels as string[]) : Object.values(stepModels as object)),
    ...Object.values(providers).flatMap(({ models = [] }) => models.filter((model) => !model.includes('*'))),
  ]
  return { byDefault, others: [...new Set(named)].filter((model) => model !== byDefault).slice(0, 200) }
}

export function modeState({ mode }: SessionSettings): SessionModeState {
  return {
    currentModeId: mode,
    availableModes: Mode.options.map((id) => ({ id, ...modes[id] })),
  }
}

export function configOptions(settings: SessionSettings, models: ModelChoices): SessionConfigOption[] {
  const { byDefault, others } = models
  return [
    {
      ...{ id: 'mode', name: 'Mode', category: 'mode', type: 'select', currentValue: settings.mode },
      options: Mode.options.map((value) => ({ value, ...modes[value] })),
    },
    {
      ...{ id: 'model', name: 'Model', category: 'model', type: 'select' },
      currentValue: settings.model ?? unset,
      options: [
        { value: unset, name: byDefault === '' ? 'Default' : `Default (${byDefault})` },
        ...others.map((value) => ({ value, name: value })),
      ],
    },
    {
      ...{ id: 'effort', name: 'Effort', category: 'thought_level', type: 'select' },
      currentValue: settings.effort ?? unset,
      options: [
        { value: unset, name: 'Default' },
        ...Object.entries(efforts).map(([value, name]) => ({ value, name })),
      ],
    },
  ]
}

/** Why {@link withOption} has none, with what may be chosen. */
export function describeRefused(
  settings: SessionSettings,
  models: ModelChoices,
  id: string,
  value: unknown,
): string {
  const options = configOptions(settings, models)
  const offered = options.find((option) => option.id === id)
  if (offered?.type !== 'select')
    return `there is no option ${shown(id)}; choose one of ${options.map((option) => option.id).join(', ')}`
  const values = (offered.options as readonly { value: string }[]).slice(0, 20).map((one) => one.value)
  return `${id}: ${shown(value)} is not offered; choose one of ${values.join(', ')}`
}

function shown(value: unknown): string {
  return String(JSON.stringify(value)).slice(0, 200).toWellFormed()
}

/** The settings with another value of an option; undefined for an option or value that was not offered. */
export function withOption(
  settings: SessionSettings,
  models: ModelChoices,
  id: string,
  value: unknown,
): SessionSettings | undefined {
  const offered = configOptions(settings, models).find((option) => option.id === id)
  const values = offered?.type === 'select' ? (offered.options as readonly { value: string }[]) : []
  if (typeof value !== 'string' || !values.some((one) => one.value === value)) return undefined
  if (id === 'mode') return { ...settings, mode: Mode.parse(value) }
  const { [id as 'model' | 'effort']: _, ...others } = settings
  return value === unset ? (others as SessionSettings) : ({ ...others, [id]: value } as SessionSettings)
}
