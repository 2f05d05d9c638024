/**
 * What tells programs of the sandbox that there is a proxy, and which. Owns the address; every program that reads one of
 * these variables finds it, and one that reads none has no network at all.
 */

export const proxyHost = '127.0.0.1'
/** Fixed, so that it may stand in a configuration file; where proxies usually are, and no development server is. */
export const proxyPort = 3128

const proxyUrl = `http://${proxyHost}:${proxyPort}`
/** What is inside the VM is reached directly. */
const inside = 'localhost,127.0.0.1,::1,0.0.0.0,caisson'

/**
 * curl reads `http_proxy` in lower case alone, others the upper case. No ALL_PROXY: what is neither http nor https cannot
 * pass, and without a proxy it fails at once, by name.
 */
export const proxyEnvironment: Readonly<Record<string, string>> = {
  HTTP_PROXY: proxyUrl,
  HTTPS_PROXY: proxyUrl,
  NO_PROXY: inside,
  http_proxy: proxyUrl,
  https_proxy: proxyUrl,
  no_proxy: inside,
  // Node looks at the others only when told to.
  NODE_USE_ENV_PROXY: '1',
  // Look for news of themselves, which would each be a refused connection.
  PIP_DISABLE_PIP_VERSION_CHECK: '1',
  NPM_CONFIG_UPDATE_NOTIFIER: 'false',
  NPM_CONFIG_FUND: 'false',
}
