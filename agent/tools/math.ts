/** `math`: evaluates an expression, so that a model need not calculate or start a program. */
import { MathInput, MathOutput, mathDescription, renderMath, workOut } from '#specs/node/task-tools/math.ts'
import { defineTool, type Tool, toolFailure, toolSuccess } from '../tool-calls/tool.ts'

export function createMath(): Tool<typeof MathInput, typeof MathOutput> {
  return defineTool({
    name: 'math',
    description: `${mathDescription}; for more than an expression use run_python.`,
    inputSchema: MathInput,
    outputSchema: MathOutput,
    requiresApproval: false,
    readOnly: true,
    async execute(input) {
      const answer = workOut(input)
      return answer.ok ? toolSuccess(answer.value) : toolFailure('invalid_input', answer.error)
    },
    render: renderMath,
  })
}
