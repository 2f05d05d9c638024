/** Why a line is there: the call that made it, and the turn, task, messages and approval behind it. All of it is text. */
import { useEffect, useState } from 'preact/hooks'
import type { ServiceReply } from '../../client/index.ts'
import { Dialog, Failure, Untrusted } from '../parts/parts.tsx'
import { count, dateTime, prettyJson, visible, visibleLine } from '../parts/text.ts'
import { useSession } from '../session/session.ts'
import { type AskedLine, originOf } from './why.ts'

type Blame = ServiceReply<'blameLines'>
type Call = Blame['calls'][number]

/** Candidates that are shown. */
const callsShown = 10

export function WhyDialog({
  run,
  path,
  line,
  onClose,
}: {
  readonly run: string
  readonly path: string
  readonly line: AskedLine
  readonly onClose: () => void
}) {
  const { client, fail } = useSession()
  const [blame, setBlame] = useState<Blame>()
  const [error, setError] = useState<string>()
  useEffect(() => {
    const ending = new AbortController()
    const { signal } = ending
    client
      .call('blameLines', { params: { run }, query: { path }, signal })
      .then(setBlame)
      .catch((thrown: unknown) => {
        if (!signal.aborted) setError(fail(thrown))
      })
    return () => ending.abort()
  }, [run, path])
  return (
    <Dialog title={`Why this line is ${line.kind === 'added' ? 'there' : 'gone'}`} onClose={onClose}>
      <div class="why-chain">
        <p>
          Line {line.number} of <code>{visible(path)}</code>
        </p>
        <Untrusted text={line.text} />
        {error !== undefined && <Failure text={error} />}
        <div role="status">{blame === undefined && error === undefined && <p>Reading the journal…</p>}</div>
        {blame !== undefined && <Origin blame={blame} line={line} />}
      </div>
    </Dialog>
  )
}

function Origin({ blame, line }: { readonly blame: Blame; readonly line: AskedLine }) {
  const origin = originOf(blame, line)
  const show = (positions: readonly number[]) =>
    positions.slice(0, callsShown).flatMap((at) => {
      const call = blame.calls[at]
      return call === undefined ? [] : [<CallChain key={call.seq} call={call} prompt={blame.prompt} />]
    })
  if (origin === undefined) return <p>The line is not of the run: your file changed since it started.</p>
  if (origin.kind === 'call') return <>{show([origin.call])}</>
  if (origin.kind === 'workspace')
    return (
      <>
        <p>
          It was in your files: line {origin.line} of <code>{visible(origin.path)}</code>
          {origin.moved === undefined ? '.' : '. This call renamed the file:'}
        </p>
        {origin.moved !== undefined && show([origin.moved])}
      </>
    )
  const all = origin.calls.length + origin.more
  return (
    <>
      {origin.access && <p>A person had access to the VM and may have done it.</p>}
      {all === 0 && !origin.access && <p>The journal does not say which call did it.</p>}
      {all > 0 && <p>No diff shows which call did it. It is one of {count(all, 'call')}:</p>}
      {show(origin.calls)}
      {all > callsShown && <p>And {count(all - callsShown, 'further call')}.</p>}
    </>
  )
}

function CallChain({ call, prompt }: { readonly call: Call; readonly prompt: string }) {
  const { tool, agentPath, stepId, stepTitle, turn, messages, approval, brief, error } = call
  const step = stepTitle === '' ? stepId : stepTitle
  return (
    <div class="why-call">
      <h3>
        {visibleLine(tool, 80)} <span class="hint">{dateTime(call.at)}</span>
      </h3>
      <p class="hint">
        {agentPath === 'root' ? '' : `${visibleLine(agentPath)} · `}
        {visibleLine(step)}
        {turn === undefined ? '' : ` · turn ${turn.turn}`}
      </p>
      <Untrusted text={prettyJson(call.arguments)} />
      {error !== undefined && <p class="warning">{visible(error)}</p>}
      <Part name="Output" text={call.output} />
      <Part name="What the model wrote" text={turn?.text} />
      <Part name="What it reasoned" text={turn?.reasoning} />
      {messages.map(({ text, by }, index) => (
        <Part key={index} name={`Message of ${visibleLine(by, 80)}`} text={text} />
      ))}
      <Part name="Task of the sub-agent" text={brief} />
      <Part name="Task" text={prompt} />
      <h4>Approval</h4>
      <p>{approval === undefined ? 'None was asked.' : approvalText(approval)}</p>
    </div>
  )
}

function Part({ name, text = '' }: { readonly name: string; readonly text?: string | undefined }) {
  if (text === '') return null
  return (
    <>
      <h4>{name}</h4>
      <Untrusted text={text} />
    </>
  )
}

const scopes = { once: 'once', run: 'for the run', always: 'always' } as const

function approvalText({ decision, scope, by, name, rule, hint }: NonNullable<Call['approval']>): string {
  const who = name === undefined ? by : visibleLine(name, 80)
  const more = [rule, hint].filter((text) => text !== undefined).map((text) => `: ${visibleLine(text)}`)
  return `${decision === 'allow' ? 'Allowed' : 'Denied'} by ${who}, ${scopes[scope]}${more.join('')}`
}
