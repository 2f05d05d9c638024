import { expect, it } from 'vitest'
import { buildEnvironment } from '../../image/build-environment.ts'

it('programs that build the image get no key of the user [G.01]', () => {
  const keys = Object.fromEntries(
    [
      'NVIDIA_API_KEY',
      'OPENAI_API_KEY',
      'ANTHROPIC_API_KEY',
      'AWS_SECRET_ACCESS_KEY',
      'GITHUB_TOKEN',
      'NPM_TOKEN',
      'npm_config_//registry.example/:_authToken',
      'npm_config__auth',
      'LD_PRELOAD',
      'NODE_OPTIONS',
      'BASH_ENV',
      'ANYTHING_ELSE',
    ].map((name) => [name, 'secret']),
  )
  const env = buildEnvironment('/usr/bin', {
    ...keys,
    HOME: '/home/a',
    PATH: '/home/a/bin',
    UNSET: undefined,
  })
  expect(env).toEqual({ HOME: '/home/a', PATH: '/usr/bin' })
})

it('and they get what their downloads need', () => {
  const needed = {
    CAISSON_APT_SOURCES: '/srv/apt',
    HTTPS_PROXY: 'http://proxy:3128',
    https_proxy: 'http://proxy:3128',
    NODE_EXTRA_CA_CERTS: '/etc/ca.pem',
    NPM_CONFIG_REGISTRY: 'https://registry.example',
    SSL_CERT_FILE: '/etc/ca.pem',
  }
  expect(buildEnvironment('/usr/bin', needed)).toEqual({ ...needed, PATH: '/usr/bin' })
})
