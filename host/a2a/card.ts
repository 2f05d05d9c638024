/** The agent card: what Caisson offers by A2A, where, and with which authentication. Everybody may read it; it has no secret. */
import type { AgentCard } from '@a2a-js/sdk'

export const protocolVersion = '1.0'
export const textModes = ['text/plain', 'application/json'] as const

/** @param baseUrl origin by which the caller reaches the service */
export function agentCard(baseUrl: string, version: string): AgentCard {
  const bearer = {
    description: 'An API key of the service, or a JWT of its issuer, with the scopes run and read',
    ...{ scheme: 'bearer', bearerFormat: '' },
  }
  return {
    name: 'Caisson',
    description:
      'An AI agent in a small virtual machine. It works on a copy of a folder, and a person applies its changes.',
    supportedInterfaces: [
      { url: `${baseUrl}/v1/a2a`, protocolBinding: 'JSONRPC', protocolVersion, tenant: '' },
    ],
    ...{ provider: undefined, version, signatures: [] },
    capabilities: { streaming: true, pushNotifications: false, extendedAgentCard: false, extensions: [] },
    securitySchemes: { bearer: { scheme: { $case: 'httpAuthSecurityScheme', value: bearer } } },
    securityRequirements: [{ schemes: { bearer: { list: [] } } }],
    ...{ defaultInputModes: [...textModes], defaultOutputModes: [...textModes, 'text/x-diff'] },
    skills: [
      {
        ...{ id: 'task', name: 'Task in a sandbox', tags: ['code', 'files', 'sandbox'] },
        description:
          'Carries out a task with files, programs and, where it is allowed, the network. The answer is text, with a diff of the changed files.',
        examples: ['Count the words of every file', 'Make the failing test pass'],
        ...{
          inputModes: [...textModes],
          outputModes: [...textModes, 'text/x-diff'],
          securityRequirements: [],
        },
      },
    ],
  }
}
