/** The sign-ins of one host, with its configuration as it is when one is needed. */
import { CaissonError } from '#specs/errors.ts'
import { makePolicy } from './egress/policy.ts'
import type { KeyPlace } from './keys/keys.ts'
import type { Settings } from './settings.ts'
import { McpSignIns } from './sign-in/mcp-sign-ins.ts'
import type { Folders } from './state/folders.ts'

export function openSignIns(settings: Settings, place: KeyPlace & { readonly folders: Folders }): McpSignIns {
  return new McpSignIns(
    {
      place,
      resolveKey: settings.resolveKey,
      fetchFor: async (signal) => {
        const { createJudgedFetch } = await import('./sign-in/judged-fetch.ts')
        const config = await settings.config()
        const { rules: configuration, default: otherwise } = config.egress
        const policy = makePolicy({ configuration, otherwise })
        if (!policy.ok) throw new CaissonError('invalid_config', policy.error)
        return createJudgedFetch({ network: settings.network(config), policy: policy.value, signal })
      },
    },
    async () => (await settings.config()).mcpServers,
  )
}
