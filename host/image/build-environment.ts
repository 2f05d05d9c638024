/**
 * The environment of the programs that build an image: what says where downloads come from and how they are
 * trusted, never a key.
 */

const passed = new Set([
  'CAISSON_APT_KEYRING',
  'CAISSON_APT_SOURCES',
  'CURL_CA_BUNDLE',
  'HOME',
  'LANG',
  'LOGNAME',
  'NIX_SSL_CERT_FILE',
  'NODE_EXTRA_CA_CERTS',
  'SSL_CERT_DIR',
  'SSL_CERT_FILE',
  'TMPDIR',
  'TZ',
  'USER',
])
/** Programs read these in both cases. */
const passedInAnyCase = new Set([
  'all_proxy',
  'ftp_proxy',
  'http_proxy',
  'https_proxy',
  'no_proxy',
  'npm_config_cafile',
  'npm_config_registry',
])

/** @param path the folders of programs */
export function buildEnvironment(
  path: string,
  env: Readonly<Record<string, string | undefined>> = process.env,
): Record<string, string> {
  const entries = Object.entries(env).flatMap(([name, value]) => {
    const isPassed = passed.has(name) || passedInAnyCase.has(name.toLowerCase())
    return isPassed && value !== undefined ? [[name, value] as const] : []
  })
  return { ...Object.fromEntries(entries), PATH: path }
}
