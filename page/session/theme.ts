/** Light, dark, or as the system has it. */
const storageKey = 'caisson-theme'
export const themes = ['system', 'light', 'dark'] as const
export type Theme = (typeof themes)[number]

export function storedTheme(): Theme {
  const stored = localStorage.getItem(storageKey)
  return themes.find((theme) => theme === stored) ?? 'system'
}

export function applyTheme(theme: Theme): void {
  localStorage.setItem(storageKey, theme)
  document.documentElement.style.colorScheme = theme === 'system' ? '' : theme
}
