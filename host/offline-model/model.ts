/**
 * The offline model: a deterministic function from a chat request to a reply. It sees the conversation alone and is
 * not a language model; it says so in every answer.
 */
import type { ChatRequest } from '../providers/chat-request.ts'
import { act, actInTurn } from './act.ts'
import { type Conversation, readConversation } from './conversation.ts'
import { readIntent } from './intents.ts'
import { planTask, readBrief } from './plan.ts'
import { type Reply, say } from './reply.ts'
import { understandTask } from './understand.ts'

export function answerOffline(request: ChatRequest): Reply {
  const conversation = readConversation(request)
  if (conversation.stage === 'plan') {
    const agentsMax = agentsLeft(conversation)
    const plan = planTask(conversation.task, conversation.workspace, agentsMax)
    const fewer = agentsMax === undefined ? '' : ` No more than ${agentsMax} sub-agents can begin.`
    const reasoning = `I match the task against a fixed set of rules.${fewer}`
    // Without the tool the plan goes as text, which planners accept as well.
    if (!conversation.tools.has('submit_plan')) return { reasoning, text: JSON.stringify(plan), calls: [] }
    return { reasoning, text: '', calls: [{ name: 'submit_plan', arguments: { ...plan } }] }
  }
  if (conversation.stage === 'step') {
    const intent = readIntent(conversation.instructions) ?? readBrief(conversation.instructions)
    if (intent !== null) return act(intent, conversation)
    // A step that somebody else planned is read like a task.
    const read = understandTask(conversation.instructions, conversation.workspace)
    return read.ok
      ? actInTurn(read.intents, conversation)
      : act({ kind: 'look', reason: read.reason }, conversation)
  }
  return say(
    'I answer only inside a Caisson run, in the form of its planner and steps. Set a model key for free conversation.',
    'The request has neither the planner’s nor the agent’s first line.',
  )
}

/** How many sub-agents a plan may need, once one was refused for it; undefined when none was. */
function agentsLeft({ calls }: Conversation): number | undefined {
  const words = calls.map(
    ({ output }) => /\bneed \d+ sub-agents\b.* where (\d+) can begin/s.exec(output)?.[1],
  )
  const last = words.findLast((found) => found !== undefined)
  return last === undefined ? undefined : Number(last)
}
