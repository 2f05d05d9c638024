/** The form that starts a run: of a task, or of a workflow. */
import { useRef, useState } from 'preact/hooks'
import { type ServiceCall, ServiceError } from '../../client/index.ts'
import { Failure, useViewHeading } from '../parts/parts.tsx'
import { runAddress } from '../session/route.ts'
import { newKey, useSession } from '../session/session.ts'
import { folderTar } from './folder-tar.ts'
import { useWorkflow } from './use-workflow.ts'
import { WorkflowFields } from './workflow-fields.tsx'

type Body = ServiceCall<'createRun'>['body']

const empty = {
  ...{ what: 'task', prompt: '', place: 'path', workspace: '', model: '', plan: 'none' },
  ...{ minutes: '', tokens: '', dollars: '' },
}
type Fields = typeof empty

export function NewRun() {
  const { client, fail } = useSession()
  const heading = useViewHeading('New run')
  const [fields, setFields] = useState<Fields>(empty)
  const [key, setKey] = useState(newKey)
  const [error, setError] = useState<string>()
  const draft = useWorkflow()
  const isWorkflow = fields.what === 'workflow'
  const [isBusy, setBusy] = useState(false)
  const [files, setFiles] = useState<readonly File[]>([])
  /** A request that is refused after the upload does not upload again. */
  const uploaded = useRef<{ readonly files: readonly File[]; readonly id: string }>(undefined)
  const bind = (name: keyof Fields) => ({
    name,
    value: fields[name],
    onInput: ({ currentTarget }: { currentTarget: { value: string } }) =>
      setFields({ ...fields, [name]: currentTarget.value }),
  })
  const workspaceOf = async ({ place, workspace }: Fields) => {
    if (place === 'path') return { workspace: workspace.trim() }
    if (place !== 'upload') return {}
    if (uploaded.current?.files !== files) {
      const chosen = files.map((content) => ({
        ...{ path: content.webkitRelativePath || content.name, lastModified: content.lastModified, content },
      }))
      const { id } = await client.call('createWorkspace', { body: folderTar(chosen) })
      uploaded.current = { files, id }
    }
    return { uploadedWorkspace: uploaded.current.id }
  }
  const start = async () => {
    setBusy(true)
    setError(undefined)
    try {
      const input = isWorkflow ? draft.readInput() : undefined
      if (input?.ok === false) return setError(input.error)
      const more = { ...limitsOf(fields), ...(await workspaceOf(fields)) }
      const { id } =
        input === undefined
          ? await client.call('createRun', { body: { ...taskOf(fields), ...more }, idempotencyKey: key })
          : await client.call('createWorkflowRun', {
              body: { workflow: draft.text, input: input.value, ...more },
              idempotencyKey: key,
            })
      location.hash = runAddress(id)
    } catch (thrown) {
      setError(fail(thrown))
      // A refused request started nothing; one without an answer may have, and is then not started twice.
      if (thrown instanceof ServiceError && thrown.status < 500) setKey(newKey())
    } finally {
      setBusy(false)
    }
  }
  return (
    <main id="main" class="narrow">
      <h1 ref={heading} tabIndex={-1}>
        New run
      </h1>
      <form
        class="card stack"
        onSubmit={(event) => {
          event.preventDefault()
          if (!isBusy && (isWorkflow ? draft.checked?.workflow != null : fields.prompt.trim() !== ''))
            void start()
        }}
      >
        <label>
          What to run
          <select {...bind('what')}>
            <option value="task">A task in your words</option>
            <option value="workflow">A workflow file</option>
          </select>
        </label>
        {isWorkflow ? (
          <WorkflowFields draft={draft} />
        ) : (
          <label>
            Task
            <textarea {...bind('prompt')} rows={5} required placeholder="What should the agent do?" />
          </label>
        )}
        <label>
          Files to work on
          <select {...bind('place')}>
            <option value="path">A folder on the service's machine</option>
            <option value="upload">A folder of this device, uploaded</option>
            <option value="none">None: a new, empty folder</option>
          </select>
        </label>
        {fields.place === 'path' && (
          <label>
            Path of the folder
            <input
              {...bind('workspace')}
              type="text"
              required
              spellcheck={false}
              placeholder="/home/me/project"
            />
          </label>
        )}
        {fields.place === 'upload' && (
          <label>
            Folder to upload
            <input
              type="file"
              required
              ref={choosesFolder}
              onChange={({ currentTarget }) => setFiles([...(currentTarget.files ?? [])])}
            />
            <span class="hint">The run works on a copy. Download its changes when it has ended.</span>
          </label>
        )}
        {!isWorkflow && (
          <label>
            Plan
            <select {...bind('plan')}>
              <option value="none">The agent follows its plan at once</option>
              <option value="approve">I approve the plan first</option>
              <option value="only">Only a plan; nothing changes</option>
            </select>
          </label>
        )}
        <details>
          <summary>Limits and model</summary>
          <div class="columns">
            <label>
              Minutes
              <input
                {...bind('minutes')}
                type="number"
                min="1"
                step="1"
                inputMode="numeric"
                placeholder="30"
              />
            </label>
            <label>
              Tokens
              <input
                {...bind('tokens')}
                type="number"
                min="1"
                step="1"
                inputMode="numeric"
                placeholder="2000000"
              />
            </label>
            <label>
              US dollars
              <input
                {...bind('dollars')}
                type="number"
                min="0.01"
                step="any"
                inputMode="decimal"
                placeholder="none"
              />
            </label>
          </div>
          <label>
            Model
            <input {...bind('model')} type="text" spellcheck={false} placeholder="the service's default" />
          </label>
        </details>
        {error !== undefined && <Failure text={error} />}
        <div class="row">
          <button type="submit" class="primary" aria-busy={isBusy}>
            {isBusy ? (fields.place === 'upload' ? 'Uploading…' : 'Starting…') : 'Start run'}
          </button>
          <a class="button" href="#/">
            Cancel
          </a>
        </div>
      </form>
    </main>
  )
}

/** Preact does not know the attribute. */
function choosesFolder(input: HTMLInputElement | null): void {
  if (input !== null) input.webkitdirectory = true
}

function taskOf({ prompt, plan }: Fields): Body {
  return {
    prompt: prompt.trim(),
    ...(plan === 'approve' ? { plan: { approve: true } } : {}),
    ...(plan === 'only' ? { plan: { only: true } } : {}),
  }
}

/** What a workflow has, too. */
function limitsOf({ model, minutes, tokens, dollars }: Fields): Pick<Body, 'model' | 'limits'> {
  const limits = {
    ...(minutes === '' ? {} : { maxWallMs: Math.round(Number(minutes) * 60_000) }),
    ...(tokens === '' ? {} : { maxTokens: Number(tokens) }),
    ...(dollars === '' ? {} : { maxCostUsd: Number(dollars) }),
  }
  return {
    ...(model.trim() === '' ? {} : { model: model.trim() }),
    ...(Object.keys(limits).length === 0 ? {} : { limits }),
  }
}
