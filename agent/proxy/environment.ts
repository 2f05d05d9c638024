/**
 * The environment variables that point sandboxed programs to the proxy, and its address. A program that reads none of
 * them has no network access.
 */

export const proxyHost = '127.0.0.1'
/** Fixed, so that configuration files can contain it; a usual proxy port that development servers do not use. */
export const proxyPort = 3128

const proxyUrl = `http://${proxyHost}:${proxyPort}`
/** Addresses inside the VM are reached directly. */
const inside = 'localhost,127.0.0.1,::1,0.0.0.0,caisson'

/**
 * curl reads only lower-case `http_proxy`, others the upper case. No ALL_PROXY: other protocols cannot pass, and
 * without a proxy they fail at once with a clear error.
 */
export const proxyEnvironment: Readonly<Record<string, string>> = {
  HTTP_PROXY: proxyUrl,
  HTTPS_PROXY: proxyUrl,
  NO_PROXY: inside,
  http_proxy: proxyUrl,
  https_proxy: proxyUrl,
  no_proxy: inside,
  // Node reads the other variables only when this is set.
  NODE_USE_ENV_PROXY: '1',
  // Disables update checks, each of which would be a refused connection.
  PIP_DISABLE_PIP_VERSION_CHECK: '1',
  NPM_CONFIG_UPDATE_NOTIFIER: 'false',
  NPM_CONFIG_FUND: 'false',
}
