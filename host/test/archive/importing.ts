// A process of its own that imports an archive; it says when it begins and when it is done.
import { createReadStream } from 'node:fs'
import { Host } from '../../host.ts'

const [archive = '', workspace = ''] = process.argv.slice(2)
const host = new Host()
process.send?.('begin')
await host.importRun(createReadStream(archive), { workspace })
process.send?.('done')
process.disconnect()
