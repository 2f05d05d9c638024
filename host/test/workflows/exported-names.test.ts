// The names under which the library offers workflows.
import { expect, expectTypeOf, it } from 'vitest'
import { Host, type Run, type WorkspaceData, WorkspaceManager } from '../../index.ts'

const file = {
  'A@1#details': { steps: [{ id: 'a' }] },
  'A@1@step-a#details': { chat: [{ role: 'user', content: 'Go.' }] },
}

it('caisson exports WorkspaceManager, WorkspaceData and Run, which a workflow passes through [S3.04]', () => {
  const data: WorkspaceData = new WorkspaceManager().parse(JSON.stringify(file))
  expect(data).toMatchObject({ agent: 'A', version: '1', steps: [{ id: 'a', work: 'chat' }] })
  expectTypeOf<Host['startWorkflow']>().returns.resolves.toEqualTypeOf<Run>()
  expectTypeOf<Host['startWorkflow']>().parameter(0).toEqualTypeOf<string | URL | WorkspaceData>()
  expect(Host.prototype.startWorkflow).toBeInstanceOf(Function)
})
