/** The routes of what belongs to the user of the service and to no run. All but the list of workflows need the scope `admin`. */
import type { ReplyOf, RequestOf } from '#specs/service/route.ts'
import type { routes } from '#specs/service/routes.ts'
import { type Host, WorkspaceManager } from '../index.ts'
import { Refusal } from './problems.ts'

/** As in `Handlers`. */
export type StateHandlers = {
  readonly [N in
    | 'listNotes'
    | 'listGrants'
    | 'revokeGrant'
    | 'listSkills'
    | 'listWorkflows'
    | 'inspectMachine'
    | 'listTemplates']: (
    request: RequestOf<(typeof routes)[N]>,
  ) => Promise<{ readonly body: ReplyOf<(typeof routes)[N]> }>
}

export function makeStateHandlers(host: Host): StateHandlers {
  return {
    listNotes: async ({ query: { workspace } }) => {
      const notes =
        workspace === undefined ? await host.notes.list() : await host.notes.ofWorkspace(workspace)
      return { body: { notes: [...notes] } }
    },
    listGrants: async () => ({ body: { grants: [...host.grants.list()] } }),
    revokeGrant: async ({ params: { grant } }) => {
      // One that is not there needs no lock, whose folder may be missing too.
      const isThere = host.grants.list().some(({ id }) => id === grant)
      if (!isThere || (await host.grants.revoke(grant)) === null)
        throw new Refusal(404, 'not_found', `there is no permanent answer ${grant}`, {
          remedy: 'list them: GET /v1/grants',
        })
      return { body: undefined }
    },
    listSkills: async () => {
      const skills = await host.skills()
      return {
        body: { roots: [...skills.roots], skills: skills.heads(), problems: [...skills.problems] },
      }
    },
    listWorkflows: async () => ({
      body: { workflows: await new WorkspaceManager({ store: host.workflows }).listStored() },
    }),
    listTemplates: async () => ({ body: { templates: [...(await host.templates())] } }),
    inspectMachine: async () => ({ body: { findings: [...(await host.doctor())] } }),
  }
}
