/** Facts about a run that are looked up rarely: ids, folder, model, limits, and its relations to other runs. */
import type { ComponentChildren } from 'preact'
import type { ServiceReply } from '../../client/index.ts'
import { ActionButton } from '../parts/parts.tsx'
import { dateTime, dollars, duration, hostWords, tokens, visible } from '../parts/text.ts'
import { usePoll } from '../session/poll.ts'
import { runAddress } from '../session/route.ts'
import { storedName, storeName, useSession } from '../session/session.ts'
import type { RunHistory } from './history.ts'

export function DetailsView({
  run,
  resource,
  history,
}: {
  readonly run: string
  readonly resource: ServiceReply<'getRun'> | undefined
  readonly history: RunHistory
}) {
  const limits = history.start?.limits
  const workflow = history.start?.workflow
  return (
    <div class="stack">
      <section class="card pad" aria-label="Facts">
        <dl class="facts">
          <Fact name="Run">
            <code>{run}</code>
          </Fact>
          <Fact name="Started">{history.startedAt === 0 ? '' : dateTime(history.startedAt)}</Fact>
          <Fact name="Folder">
            <code>{visible(resource?.workspace ?? history.start?.directory ?? '')}</code>
          </Fact>
          <Fact name="Model">{visible(history.start?.model ?? resource?.model ?? '')}</Fact>
          {workflow !== undefined && (
            <Fact name="Workflow">
              {visible(`${workflow.name}@${workflow.version}`)} <code>{workflow.sha256.slice(0, 12)}</code>
            </Fact>
          )}
          {resource?.host !== undefined && <Fact name="Host">{hostWords(resource)}</Fact>}
          {limits !== undefined && (
            <Fact name="Limits">
              {duration(limits.maxWallMs)}, {tokens(limits.maxTokens)} tokens
              {limits.maxCostUsd !== undefined && `, ${dollars(limits.maxCostUsd)}`}, {limits.maxToolCalls}{' '}
              tool calls
            </Fact>
          )}
          {resource?.forkedFrom !== undefined && (
            <Fact name="Fork of">
              <a href={runAddress(resource.forkedFrom)}>{resource.forkedFrom}</a>
            </Fact>
          )}
          {resource?.continues !== undefined && (
            <Fact name="Continues">
              <a href={runAddress(resource.continues)}>{resource.continues}</a>
            </Fact>
          )}
          {Object.entries(resource?.metadata ?? {}).map(([name, value]) => (
            <Fact key={name} name={name}>
              {visible(value)}
            </Fact>
          ))}
        </dl>
      </section>
      <StandingAnswers run={run} />
      <section class="card pad" aria-label="You">
        <label>
          Your name, for the journal of runs that you answer
          <input
            type="text"
            maxLength={100}
            value={storedName() ?? ''}
            onInput={({ currentTarget }) => storeName(currentTarget.value)}
          />
        </label>
      </section>
    </div>
  )
}

function Fact({ name, children }: { readonly name: string; readonly children: ComponentChildren }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  )
}

/** Answers that apply to later calls, to revoke. */
function StandingAnswers({ run }: { readonly run: string }) {
  const { client } = useSession()
  const { value, refresh } = usePoll(`answers ${run}`, 5_000, (signal) =>
    client.call('listAnswers', { params: { run }, signal }),
  )
  if (value === undefined || value.answers.length === 0) return null
  return (
    <section class="card pad stack-small" aria-labelledby="answers-head">
      <h3 id="answers-head">Answers for this run</h3>
      <ul class="plain-list">
        {value.answers.map(({ approvalId, decision, tool, access, name, until }) => (
          <li key={approvalId} class="row">
            <span class="grow">
              <span class={decision === 'allow' ? 'plus' : 'minus'}>{decision}</span>{' '}
              <code>{visible(access?.allows ?? tool)}</code>
              {name !== undefined && <span class="hint"> by {visible(name)}</span>}
              {until !== undefined && <span class="hint"> until {dateTime(until)}</span>}
            </span>
            <ActionButton
              class="small"
              aria-label={`Revoke the answer about ${visible(access?.allows ?? tool)}`}
              run={async () => {
                await client.call('revokeAnswer', { params: { run, approval: approvalId } })
                refresh()
              }}
            >
              Revoke
            </ActionButton>
          </li>
        ))}
      </ul>
    </section>
  )
}
