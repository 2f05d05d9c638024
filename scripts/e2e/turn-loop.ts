/** `npm run test:e2e:turn-loop`: `runTurnLoop` against a real model that has to use a tool before its answer counts. */
import { executeTool, type LLMChatMessage, runTurnLoop } from '../../runtime/index.ts'
import { calls, text } from '../../runtime/testing/index.ts'
import { expectThat, openNotebook, runMain } from './notebook.ts'
import { openTarget } from './target.ts'

const dry = [
  text("I'll save the note."),
  calls({ name: 'save_note', arguments: { title: 'shopping', content: 'bread' } }),
  calls({ name: 'list_notes' }),
  text('The note is saved.'),
]

interface State {
  readonly messages: readonly LLMChatMessage[]
  readonly finalText: string
}

runMain(async () => {
  await using target = await openTarget(dry)
  const { notes, tools } = openNotebook()
  const content =
    'Save a note with the title "shopping" and the content "bread" by calling save_note. List the notes with list_notes. Then say that you are done.'
  const result = await runTurnLoop<State>({
    initialState: { messages: [{ role: 'user', content }], finalText: '' },
    emptyTextRetryLimit: 1,
    rejectedTextRetryLimit: 2,
    modelRequest: { ...target.model, tools, mode: 'stream' },
    buildMessages: ({ state, transientInstruction }) =>
      transientInstruction === undefined
        ? state.messages
        : [...state.messages, { role: 'user', content: transientInstruction }],
    requiresActionEvidence: () => !notes.has('shopping'),
    onModelResponse: ({ iteration, response }) => {
      const names = response.tool_calls?.map((call) => call.function.name).join(', ')
      process.stdout.write(`turn ${iteration}: ${names ?? JSON.stringify(response.content.slice(0, 80))}\n`)
    },
    onToolCallsResponse: async ({ state, response, abortSignal }) => {
      const results = await Promise.all(
        (response.tool_calls ?? []).map((call) => executeTool(undefined, call, { tools, abortSignal })),
      )
      const told = results.map(({ message }) => message)
      return {
        state: { ...state, messages: [...state.messages, response.assistantMessage, ...told] },
        next: { control: 'continue' },
        toolResults: told.map((one) => ({ toolCallId: one.tool_call_id ?? '', content: one.content })),
      }
    },
    onTextResponse: ({ state, response, responseText }) => ({
      state: { messages: [...state.messages, response.assistantMessage], finalText: responseText },
    }),
  })
  const { reason, iterations, elapsedMs } = result
  expectThat(
    reason === 'text_response',
    `the loop ends with an answer, after ${iterations} turns and ${elapsedMs} ms`,
  )
  expectThat(notes.get('shopping') === 'bread', 'the tool was used before the answer counted')
  target.check()
})
