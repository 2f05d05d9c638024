// Runs around each test file. A developer's shell or a CI machine may have a model server's key, a trace
// collector or a configuration file; tests use none of them unless they set it themselves.
import { afterAll, vi } from 'vitest'

for (const name of Object.keys(process.env)) {
  if (
    /^(NVIDIA_API_KEY|CAISSON_(LLM_|MODEL)|OTEL_|OPENAI_|(PORT|ENVIRONMENT|DEBUG|CORS_ORIGINS|JWT_(JWKS|ISSUER|AUDIENCE))$)/.test(
      name,
    )
  )
    delete process.env[name]
}
// Nobody can make a folder there, root included.
process.env.XDG_CONFIG_HOME = '/proc/no-configuration'

// Files of the fast tier share a process: each one gets the variables, timers and functions that the first one got.
const given = { ...process.env }
afterAll(() => {
  for (const name of Object.keys(process.env)) if (!(name in given)) delete process.env[name]
  Object.assign(process.env, given)
  vi.useRealTimers()
  vi.restoreAllMocks()
})
