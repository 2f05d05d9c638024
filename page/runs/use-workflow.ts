/** A workflow file that somebody types, drops or chooses: checked by the service as it changes. */
import { useEffect, useState } from 'preact/hooks'
import type { ServiceReply } from '../../client/index.ts'
import { useSession } from '../session/session.ts'
import { fieldsOf, type InputField, type InputValues, inputOf, inputOfJson } from './input-form.ts'

export type CheckedWorkflow = ServiceReply<'checkWorkflow'>

export interface DraftWorkflow {
  readonly text: string
  readonly setText: (text: string) => void
  /** Takes a file of this device. */
  readonly take: (file: File) => Promise<void>
  /** Of the text as it is. Undefined: not known yet, or there is no text. */
  readonly checked: CheckedWorkflow | undefined
  /** Why it is not checked. */
  readonly error: string | undefined
  /** Fields of its input. Undefined: JSON. */
  readonly fields: readonly InputField[] | undefined
  readonly values: InputValues
  readonly setValue: (name: string, value: string) => void
  readonly json: string
  readonly setJson: (text: string) => void
  readonly readInput: () => ReturnType<typeof inputOf>
}

const checkAfterMs = 350
/** Of the service. */
const maxChars = 512 * 1024

export function useWorkflow(): DraftWorkflow {
  const { client, fail } = useSession()
  const [text, setText] = useState('')
  const [checked, setChecked] = useState<CheckedWorkflow>()
  const [error, setError] = useState<string>()
  const [values, setValues] = useState<InputValues>({})
  const [json, setJson] = useState('')
  useEffect(() => {
    setError(undefined)
    if (text.trim() === '') {
      setChecked(undefined)
      return undefined
    }
    const ending = new AbortController()
    const timer = setTimeout(() => {
      client
        .call('checkWorkflow', { body: { workflow: text }, signal: ending.signal })
        .then(setChecked, (thrown: unknown) => {
          if (ending.signal.aborted) return
          setChecked(undefined)
          setError(fail(thrown))
        })
    }, checkAfterMs)
    return () => {
      clearTimeout(timer)
      ending.abort()
    }
  }, [text, client])
  const fields = fieldsOf(checked?.workflow?.input)
  const take = async (file: File) => {
    if (file.size > 4 * maxChars) {
      setError(`${file.name} is longer than ${maxChars} characters`)
      return
    }
    setText(await file.text())
  }
  return {
    ...{ text, setText, take, checked, error, fields, values, json, setJson },
    setValue: (name, value) => setValues((before) => ({ ...before, [name]: value })),
    readInput: () => (fields === undefined ? inputOfJson(json) : inputOf(fields, values)),
  }
}
