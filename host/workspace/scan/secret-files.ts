/**
 * Detects files that likely contain secrets, by name and for some by content. They are excluded from the VM unless
 * `--include` names them. The list covers common places, not every secret.
 */
import path from 'node:path'

/** File names, compared in lower case. */
const secretNames: readonly RegExp[] = [
  /^\.env(\..+)?$/,
  /^.+\.env$/,
  /^\.envrc$/,
  /\.(pem|key|p12|pfx|p8|jks|keystore|kdbx|ppk|ovpn)$/,
  /^id_(rsa|dsa|ecdsa|ed25519|ecdsa_sk|ed25519_sk)([._-].*)?$/,
  /^[._]netrc$/,
  /^\.(pgpass|my\.cnf|pypirc|htpasswd|git-credentials|vault-token|s3cfg|boto)$/,
  /^credentials(\.json)?$/,
  /^client_secret.*\.json$/,
  /^service[-_]account.*\.json$/,
  /\.(tfstate(\.backup)?|tfvars(\.json)?)$/,
  /^(\.terraformrc|terraform\.rc|credentials\.tfrc\.json)$/,
  /^(.+[._-])?kubeconfig(\.(ya?ml|json|conf))?$/,
  /^\.dockercfg$/,
]

/** Exceptions from {@link secretNames}: templates without values, public keys. */
const harmlessNames: readonly RegExp[] = [
  /^\.?env\.(example|sample|template|dist|defaults)$/,
  /\.env\.(example|sample|template|dist)$/,
  /\.pub$/,
]

/** Directories with credentials, and files by the end of their path. */
const secretDirectories = new Set(['.aws', '.ssh', '.gnupg', '.kube', '.azure', '.password-store'])
const secretPathEnds = [
  '.docker/config.json',
  '.config/gcloud',
  '.config/gh/hosts.yml',
  '.cargo/credentials.toml',
]

/** Files that may contain a secret, with the text pattern that shows it. */
const secretPatterns: readonly { readonly at: RegExp; readonly text: RegExp }[] = [
  { at: /(^|\/)\.npmrc$/i, text: /_(authToken|auth|password)\s*=|:\/\/[^\s/@]+@/i },
  { at: /(^|\/)\.yarnrc\.yml$/i, text: /npmAuth(Token|Ident)\s*:|:\/\/[^\s/@]+@/i },
  // A submodule's repository is below `modules`, a worktree's settings are below `worktrees`.
  { at: /(^|\/)\.git\/(.+\/)?config(\.worktree)?$/i, text: /:\/\/[^\s/@]+@|extraheader\s*=/i },
]

/** Whether an absolute path leads into a directory of credentials. */
export function isInSecretDirectory(absolutePath: string): boolean {
  const lower = `${absolutePath.toLowerCase()}/`
  return (
    lower.split('/').some((name) => secretDirectories.has(name)) ||
    secretPathEnds.some((end) => lower.includes(`/${end}/`))
  )
}

/** Whether the name or place alone indicates a secret. @param filePath absolute, or below any directory */
export function isSecretByName(filePath: string, isDirectory: boolean): boolean {
  const name = path.posix.basename(filePath).toLowerCase()
  const lower = filePath.toLowerCase()
  if (secretPathEnds.some((end) => lower === end || lower.endsWith(`/${end}`))) return true
  if (isDirectory) return secretDirectories.has(name)
  if (harmlessNames.some((pattern) => pattern.test(name))) return false
  return secretNames.some((pattern) => pattern.test(name))
}

/** Whether {@link holdsSecret} applies to this file. */
export function mayHoldSecret(filePath: string): boolean {
  return secretPatterns.some(({ at }) => at.test(filePath))
}

/** Whether the text of such a file contains a token or password. */
export function holdsSecret(filePath: string, text: string): boolean {
  return secretPatterns.some((tale) => tale.at.test(filePath) && tale.text.test(text))
}

/** Whether a file likely holds a secret: by its name, its place, or for some files by its text. */
export function isLikelySecret(filePath: string, text = ''): boolean {
  return (
    isInSecretDirectory(path.posix.dirname(filePath)) ||
    isSecretByName(filePath, false) ||
    holdsSecret(filePath, text)
  )
}
