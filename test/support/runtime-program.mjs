// What an application does with caisson/runtime: a loop, files, a program, a structured answer. `node FILE FOLDER`.
import assert from 'node:assert'
import { createRuntime, generateStructured } from 'caisson/runtime'
import { calls, createScriptedModel, text } from 'caisson/testing'

const [, , workingDirectory] = process.argv
const call = (name, args) => ({ name, arguments: args })
const model = createScriptedModel({
  replies: [
    calls(call('read_file', { filePath: 'note.txt' }), call('list_files', {}), call('grep', { query: 'bl' })),
    calls(
      call('write_file', { filePath: 'out.txt', content: 'x' }),
      call('shell_cmd', { command: 'echo', parameters: ['hi'] }),
    ),
    text('<THINK>hm</THINK>blue'),
    text('{"a":1}'),
  ],
})
const local = { kind: 'openai-compatible', baseUrl: await model.listen() }
const runtime = createRuntime({ providers: { local } })
const request = { provider: 'local', model: 'm', messages: [{ role: 'user', content: 'Go.' }] }
const types = []
const work = { ...request, workingDirectory, builtIns: true, requiredEvidence: 'write' }
for await (const event of runtime.streamComplete(work)) {
  types.push(event.type)
  if (event.type === 'completed') assert.equal(event.result.content, 'blue')
}
assert.equal(types.at(-1), 'completed')
assert.ok(!types.includes('tool_error'), types.join())
const schema = { type: 'object', properties: { a: { type: 'number' } } }
const { value } = await generateStructured({ ...request, environment: runtime.environment, schema })
assert.deepEqual(value, { a: 1 })
model.assertDone()
await runtime.dispose()
await model[Symbol.asyncDispose]()
console.log('ok', process.version)
