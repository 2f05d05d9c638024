// A process of its own that applies a run's changes as the host does, and kills itself while files are staged.
import { Host } from '../../host.ts'
import { RunRecord } from '../../journal/run-record.ts'
import { manifestFile } from '../../runs/prepare.ts'
import { applyChanges, readChangeSet, readManifest, reviewChanges } from '../../workspace/index.ts'
import { unwrap } from '../workspace/support.ts'

const [runId = ''] = process.argv.slice(2)
const paths = new Host().runs.paths(runId)
const manifest = unwrap(await readManifest(manifestFile(paths.directory)))
const changes = unwrap(await readChangeSet(paths.directory))
const record = await RunRecord.open(paths)
unwrap(await record.holdDirectory(manifest.root))
const review = unwrap(await reviewChanges(manifest, changes))
await record.host({ type: 'apply-start', paths: review.items.length, sha256: changes.sha256 })
await applyChanges({
  review,
  selection: 'all',
  runDirectory: paths.directory,
  onStep: ({ kind }) => {
    if (kind === 'done') process.kill(process.pid, 'SIGKILL')
  },
})
