/**
 * Whether a text holds what looks like a key, a token or a password. A note lives on in other runs and other conversations:
 * what should be in none must not get into it. Finds the usual forms, not every secret.
 */

/** Forms that are hardly ever anything else, each with what it is. */
const forms: readonly (readonly [RegExp, string])[] = [
  [/-----BEGIN [A-Z ]*PRIVATE KEY-----/, 'a private key'],
  [/\b(?:AKIA|ASIA)[0-9A-Z]{16}\b/, 'a key of AWS'],
  [/\bgh[pousr]_[A-Za-z0-9]{30,}|\bgithub_pat_[A-Za-z0-9_]{30,}/, 'a token of GitHub'],
  [/\bglpat-[A-Za-z0-9_-]{18,}/, 'a token of GitLab'],
  [/\bnpm_[A-Za-z0-9]{30,}/, 'a token of npm'],
  [/\bxox[abeoprs]-[A-Za-z0-9-]{10,}/, 'a token of Slack'],
  [/\bAIza[0-9A-Za-z_-]{30,}/, 'a key of Google'],
  [/\b(?:nvapi|sk|pk|rk)-[A-Za-z0-9_-]{20,}/, 'an API key'],
  [/\b(?:sk|rk)_(?:live|test)_[A-Za-z0-9]{16,}/, 'a key of Stripe'],
  [/\beyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]*/, 'a signed token'],
  [/\b[a-z][a-z0-9+.-]{1,20}:\/\/[^\s/:@]{1,100}:[^\s/@]{3,200}@/i, 'an address with a password'],
  [
    /\b(?:pass(?:word|wd|phrase)?|secret|token|api[_ -]?key|access[_ -]?key|credentials?)\b["']?\s*(?:[:=]|\bis\b)\s*["']?(?=\S*\d)(?=\S*[A-Za-z])[^\s"']{8,}/i,
    'a password or token',
  ],
]

/** What the text seems to hold, such as `a private key`; undefined: nothing of the kind. */
export function findLikelySecret(text: string): string | undefined {
  return forms.find(([form]) => form.test(text))?.[1]
}
