// The tools, resources and prompts that MCP's conformance suite calls, behind Caisson's own HTTP side and signed states.
import { randomBytes } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import {
  type CallToolResult,
  completable,
  fromJsonSchema,
  inputRequired,
  inputResponse,
  McpServer,
  ResourceTemplate,
  type ServerContext,
} from '@modelcontextprotocol/server'
import * as z from 'zod'
import { questionStates } from '../../host/mcp-server/request-state.ts'

const png = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=='
const wav = 'UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQAAAAA='
const states = questionStates(randomBytes(32), 'suite')
const text = (said: string): CallToolResult => ({ content: [{ type: 'text', text: said }] })
const image = { type: 'image', data: png, mimeType: 'image/png' } as const
const embedded = {
  type: 'resource',
  resource: { uri: 'test://embedded', mimeType: 'text/plain', text: 'embedded' },
} as const
const form = (message: string, properties: object) =>
  inputRequired.elicit({
    message,
    requestedSchema: { type: 'object', properties, required: Object.keys(properties) },
  } as never)
const name = { name: { type: 'string' } }
const options = ['option1', 'option2', 'option3']
const titled = ['First', 'Second', 'Third'].map((order, index) => ({
  const: `value${index + 1}`,
  title: `${order} Option`,
}))
/** Each form of a choice that a schema may have. */
const choices = {
  untitledSingle: { type: 'string', enum: options },
  titledSingle: { type: 'string', oneOf: titled },
  legacyEnum: {
    ...{ type: 'string', enum: ['opt1', 'opt2', 'opt3'] },
    enumNames: ['Option One', 'Option Two', 'Option Three'],
  },
  untitledMulti: { type: 'array', items: { type: 'string', enum: options } },
  titledMulti: { type: 'array', items: { anyOf: titled } },
}
/** Parts of JSON Schema 2020-12 that a list of tools has to keep. */
const wholeSchema = {
  $schema: 'https://json-schema.org/draft/2020-12/schema',
  type: 'object',
  $defs: {
    address: {
      ...{ $anchor: 'addressDef', type: 'object' },
      properties: { street: { type: 'string' }, city: { type: 'string' } },
    },
  },
  properties: {
    name: { type: 'string' },
    address: { $ref: '#/$defs/address' },
    contactMethod: { type: 'string', enum: ['phone', 'email'] },
    phone: { type: 'string' },
    email: { type: 'string' },
  },
  allOf: [{ anyOf: [{ required: ['phone'] }, { required: ['email'] }] }],
  if: { properties: { contactMethod: { const: 'phone' } }, required: ['contactMethod'] },
  // biome-ignore lint/suspicious/noThenProperty: a keyword of JSON Schema
  then: { required: ['phone'] },
  else: { required: ['email'] },
  additionalProperties: false,
} as const
/** Its argument comes in a header as well. */
const headerSchema = {
  type: 'object',
  properties: { region: { type: 'string', 'x-mcp-header': 'Region' } },
  required: ['region'],
} as const

type Tool = (context: ServerContext, given: Readonly<Record<string, unknown>>) => Promise<unknown>

const tools: Readonly<Record<string, Tool>> = {
  test_simple_text: async () => text('This is a simple text response for testing.'),
  test_image_content: async () => ({ content: [image] }),
  test_audio_content: async () => ({ content: [{ type: 'audio', data: wav, mimeType: 'audio/wav' }] }),
  test_embedded_resource: async () => ({ content: [embedded] }),
  test_multiple_content_types: async () => ({
    content: [{ type: 'text', text: 'several' }, image, embedded],
  }),
  test_error_handling: async () =>
    Promise.reject(new Error('This tool intentionally returns an error for testing')),
  test_tool_with_progress: async ({ mcpReq }) => {
    const progressToken = mcpReq._meta?.progressToken
    for (const progress of [0, 50, 100]) {
      if (progressToken !== undefined)
        await mcpReq.notify({
          method: 'notifications/progress',
          params: { progressToken, progress, total: 100 },
        })
      await sleep(20)
    }
    return text('done')
  },
  test_elicitation: ask('who', ({ message }) =>
    form(String(message), { username: { type: 'string' }, email: { type: 'string' } }),
  ),
  test_elicitation_sep1034_defaults: ask('all', () =>
    form('Defaults', {
      name: { type: 'string', default: 'John Doe' },
      age: { type: 'integer', default: 30 },
      score: { type: 'number', default: 95.5 },
      status: { type: 'string', enum: ['active', 'inactive', 'pending'], default: 'active' },
      verified: { type: 'boolean', default: true },
    }),
  ),
  test_elicitation_sep1330_enums: ask('all', () => form('Choices', choices)),
  test_tool_with_logging: async ({ mcpReq }) => {
    for (const data of ['Tool execution started', 'Tool processing data', 'Tool execution completed']) {
      await mcpReq.log('info', data)
      await sleep(20)
    }
    return text('done')
  },
  test_sampling: ask('answer', ({ prompt }) =>
    inputRequired.createMessage({
      messages: [{ role: 'user', content: { type: 'text', text: String(prompt) } }],
      maxTokens: 100,
    }),
  ),
  test_input_required_result_elicitation: ask('user_name', () => form('What is your name?', name)),
  test_input_required_result_sampling: ask('capital_question', () =>
    inputRequired.createMessage({
      messages: [{ role: 'user', content: { type: 'text', text: 'What is the capital of France?' } }],
      maxTokens: 100,
    }),
  ),
  test_input_required_result_list_roots: ask('client_roots', () => inputRequired.listRoots()),
  test_input_required_result_multiple_inputs: async (context) => {
    if (context.mcpReq.requestState() !== undefined) return text('state-ok')
    const inputRequests = {
      user_name: form('What is your name?', name),
      greeting: inputRequired.createMessage({
        messages: [{ role: 'user', content: { type: 'text', text: 'Generate a greeting' } }],
        maxTokens: 50,
      }),
      client_roots: inputRequired.listRoots(),
    }
    return inputRequired({ inputRequests, requestState: await mint('all', 1, context) })
  },
  test_input_required_result_request_state: rounds('confirm'),
  test_input_required_result_tampered_state: rounds('confirm'),
  test_input_required_result_multi_round: rounds('step1', 'step2'),
}

async function mint(approvalId: string, next: number, context: ServerContext): Promise<string> {
  return await states.mint({ runId: 'run-0', approvalId, question: '', call: '', next }, context)
}

/** A tool that needs one input. */
function ask(
  key: string,
  question: (given: Readonly<Record<string, unknown>>) => ReturnType<typeof form>,
): Tool {
  return async ({ mcpReq }, given) => {
    const response = inputResponse(mcpReq.inputResponses, key)
    if (response.kind !== 'missing') return text(`User response: ${JSON.stringify(response)}`)
    return inputRequired({ inputRequests: { [key]: question(given) } })
  }
}

/** A tool that needs several inputs one after another, with a signed state. */
function rounds(...keys: readonly string[]): Tool {
  return async (context) => {
    const { next = 0 } = context.mcpReq.requestState<{ next: number }>() ?? {}
    const key = keys[next]
    if (key === undefined) return text('state-ok')
    return inputRequired({
      inputRequests: { [key]: form(key, { ok: { type: 'boolean' } }) },
      requestState: await mint(key, next + 1, context),
    })
  }
}

export function createSuiteServer(): McpServer {
  const server = new McpServer(
    { name: 'suite', version: '1' },
    {
      capabilities: { tools: {}, logging: {}, completions: {} },
      requestState: { verify: (state, context) => states.verify(state, context) },
    },
  )
  for (const [tool, work] of Object.entries(tools))
    server.registerTool(
      tool,
      { description: tool, inputSchema: z.looseObject({}) },
      async (given, context) => (await work(context, given)) as CallToolResult,
    )
  for (const [tool, schema] of Object.entries({
    json_schema_2020_12_tool: wholeSchema,
    test_header: headerSchema,
  }))
    server.registerTool(tool, { description: tool, inputSchema: fromJsonSchema(schema as never) }, async () =>
      text('done'),
    )
  addResources(server)
  addPrompts(server)
  return server
}

function addResources(server: McpServer): void {
  const plain = (uri: URL, said: string) => ({
    contents: [{ uri: uri.href, mimeType: 'text/plain', text: said }],
  })
  server.registerResource('text', 'test://static-text', { mimeType: 'text/plain' }, async (uri) =>
    plain(uri, 'This is the content of the static text resource.'),
  )
  server.registerResource('binary', 'test://static-binary', { mimeType: 'image/png' }, async (uri) => ({
    contents: [{ uri: uri.href, mimeType: 'image/png', blob: png }],
  }))
  server.registerResource(
    'template',
    new ResourceTemplate('test://template/{id}/data', { list: undefined }),
    {},
    async (uri, { id }) => plain(uri, JSON.stringify({ id, data: `Data for ID: ${String(id)}` })),
  )
}

function addPrompts(server: McpServer): void {
  const user = (...contents: object[]) =>
    ({ messages: contents.map((content) => ({ role: 'user', content })) }) as never
  server.registerPrompt('test_simple_prompt', { description: 'a prompt' }, async () =>
    user({ type: 'text', text: 'This is a simple prompt for testing.' }),
  )
  server.registerPrompt(
    'test_prompt_with_arguments',
    {
      description: 'a prompt',
      argsSchema: z.object({ arg1: completable(z.string(), () => ['test']), arg2: z.string() }),
    },
    async ({ arg1, arg2 }) =>
      user({ type: 'text', text: `Prompt with arguments: arg1='${arg1}', arg2='${arg2}'` }),
  )
  server.registerPrompt(
    'test_prompt_with_embedded_resource',
    { description: 'a prompt', argsSchema: z.object({ resourceUri: z.string() }) },
    async ({ resourceUri }) =>
      user(
        { type: 'resource', resource: { uri: resourceUri, mimeType: 'text/plain', text: 'embedded' } },
        { type: 'text', text: 'Process it.' },
      ),
  )
  server.registerPrompt(
    'test_input_required_result_prompt',
    { description: 'a prompt' },
    async ({ mcpReq }) => {
      const given = inputResponse(mcpReq.inputResponses, 'user_context')
      if (given.kind !== 'missing') return user({ type: 'text', text: JSON.stringify(given) })
      const asked = form('What context should the prompt use?', { context: { type: 'string' } })
      return inputRequired({ inputRequests: { user_context: asked } }) as never
    },
  )
  server.registerPrompt('test_prompt_with_image', { description: 'a prompt' }, async () =>
    user(image, { type: 'text', text: 'Look at it.' }),
  )
}
