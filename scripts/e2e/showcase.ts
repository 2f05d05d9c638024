/** `npm run test:e2e`: the library's calls against a real model: an environment, an answer whole and streamed, a tool. */
import {
  createLLMEnvironment,
  disposeLLMRuntimeCaches,
  executeTool,
  generate,
  type LLMChatMessage,
  stream,
} from '../../runtime/index.ts'
import { calls, text } from '../../runtime/testing/index.ts'
import { expectThat, openNotebook, runMain } from './notebook.ts'
import { openTarget } from './target.ts'

const dry = [
  text('Hello.'),
  text(['One, ', 'two, ', 'three.']),
  calls({ name: 'save_note', arguments: { title: 'greeting', content: 'Hello.' } }),
  text('The note is saved.'),
]

runMain(async () => {
  await using target = await openTarget(dry)
  await using environment = createLLMEnvironment()
  expectThat(environment.providerStore.list().length > 0, 'an environment knows the kinds of providers')
  const { model } = target

  const said = await generate({ ...model, messages: [{ role: 'user', content: 'Say hello, in one word.' }] })
  expectThat(said.type === 'text' && said.content.trim() !== '', `generate answers: ${short(said.content)}`)

  const count: LLMChatMessage = { role: 'user', content: 'Count to three, in words.' }
  const reading = stream({ ...model, messages: [count] })
  let heard = ''
  let next = await reading.next()
  for (; next.done !== true; next = await reading.next()) heard += next.value.content ?? ''
  expectThat(heard === next.value.content && heard !== '', `stream tells what it returns: ${short(heard)}`)

  const { notes, tools } = openNotebook()
  const messages: LLMChatMessage[] = [
    {
      role: 'user',
      content: 'Save a note with the title "greeting" by calling save_note. Then say that it is saved.',
    },
  ]
  const asked = await generate({ ...model, tools, messages })
  const [call] = asked.tool_calls ?? []
  if (call === undefined) throw new Error(`expected a call of save_note, got: ${short(asked.content)}`)
  const { message } = await executeTool(undefined, call, { tools })
  expectThat(notes.has('greeting'), `a call is carried out: ${message.content}`)
  const told = await generate({ ...model, tools, messages: [...messages, asked.assistantMessage, message] })
  expectThat(told.content !== '' || told.tool_calls !== undefined, 'the model takes the result')
  target.check()
  await disposeLLMRuntimeCaches()
})

function short(words: string): string {
  return JSON.stringify(words.length > 80 ? `${words.slice(0, 79)}…` : words)
}
