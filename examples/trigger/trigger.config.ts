/** The project of Trigger.dev that has the tasks. */
import { defineConfig } from '@trigger.dev/sdk'

export default defineConfig({
  // From the dashboard of Trigger.dev.
  project: process.env.TRIGGER_PROJECT_REF ?? '',
  dirs: ['./trigger'],
  // Node 24, which the package needs.
  runtime: 'node-24',
  maxDuration: 1_800,
  // The package finds its own files beside it.
  build: { external: ['caisson'] },
})
