/**
 * The offline step agent: from one intent and the calls so far, the next turn. After a failed call it lists the workspace
 * once and reports the failure; it never repeats a call.
 */

import { actOnCsv } from './act-csv.ts'
import { patternsOf } from './chores.ts'
import type { PastCall, PastConversation } from './conversation.ts'
import { actOnHost, type HostIntent, hostIntentOf } from './host-work.ts'
import type { UserIntent } from './intents.ts'
import { actOnPage } from './page.ts'
import {
  answersIn,
  call,
  conclude,
  describeDenial,
  endedWell,
  isNotDone,
  type OfflineReply,
  quoteOutput,
  type StepAnswer,
  say,
  sayNotDone,
} from './reply.ts'
import { writeChoreScript, writeCountScript, writeSumScript } from './small-scripts.ts'

/** The next turn of a step. */
export function act(intent: UserIntent, conversation: PastConversation): OfflineReply {
  const reasoning = `The rule for "${intent.kind}" fits this step.`
  if (intent.kind === 'fetch-page' || intent.kind === 'summarize-page' || intent.kind === 'save-page') {
    return actOnPage(intent, conversation, reasoning)
  }
  const failed = conversation.calls.findIndex((past) => past.errorCode !== null)
  if (failed >= 0) return explainFailure(conversation, failed, reasoning)
  if (intent.kind === 'inspect-csv' || intent.kind === 'analyze-csv') {
    return actOnCsv(intent, conversation, reasoning)
  }
  if (intent.kind === 'look') return look(intent.reason, conversation, reasoning)
  if (intent.kind === 'help') return say(abilities, reasoning)
  if (intent.kind === 'delete-files') return deleteFiles(intent, conversation, reasoning)
  const ofHost = hostIntentOf(intent, conversation)
  if (ofHost !== null) return actOnHost(ofHost, conversation, reasoning)
  const turns = turnsFor(intent as PlainIntent)
  const done = conversation.calls.length
  const turn = turns.calls[done]
  const isOwn = intent.kind === 'call-tool'
  if (turn !== undefined) return call(conversation, turn.name, turn.arguments, reasoning, isOwn)
  return conclude(turns.answer(conversation.calls), reasoning)
}

/** The next turn of a step with several orders, which run one after another. */
export function actInTurn(intents: readonly UserIntent[], conversation: PastConversation): OfflineReply {
  const answers: string[] = []
  let left = conversation.calls
  let reply: OfflineReply | undefined
  for (const intent of intents) {
    let used = 0
    reply = act(intent, { ...conversation, calls: [] })
    // The calls so far are those of its rule, in order.
    while (reply.calls.length > 0 && used + reply.calls.length <= left.length) {
      used += reply.calls.length
      reply = act(intent, { ...conversation, calls: left.slice(0, used) })
    }
    if (reply.calls.length > 0 || isNotDone(reply)) return reply
    answers.push(reply.text)
    left = left.slice(used)
  }
  return { reasoning: reply?.reasoning ?? '', text: answers.join('\n'), calls: [] }
}

interface Turns {
  readonly calls: readonly { readonly name: string; readonly arguments: Readonly<Record<string, unknown>> }[]
  answer(calls: readonly PastCall[]): StepAnswer
}

type PlainIntent = Exclude<
  UserIntent,
  {
    kind:
      | 'inspect-csv'
      | 'analyze-csv'
      | 'fetch-page'
      | 'summarize-page'
      | 'save-page'
      | 'look'
      | 'help'
      | 'delete-files'
      | HostIntent['kind']
  }
>

/** The calls of an intent in order, and the answer when all of them succeeded. */
function turnsFor(intent: PlainIntent): Turns {
  const q = JSON.stringify
  switch (intent.kind) {
    case 'create': {
      const { path, content } = intent
      return one('write_file', { path, content }, (output) => `Wrote ${q(path)}. ${output}`, 300)
    }
    case 'make-folder':
      return shell(`mkdir -p -- ${quoteWord(intent.path)}`, `Made the folder ${q(intent.path)}.`)
    case 'replace': {
      const { path, from, to } = intent
      const edit = one(
        'edit_file',
        { path, oldText: from, newText: to, replaceAll: true },
        (output) => `Replaced ${q(from)} with ${q(to)} in ${q(path)}.\n${output}`,
        600,
      )
      return {
        calls: [{ name: 'read_file', arguments: { path } }, ...edit.calls],
        answer: (calls) => edit.answer(calls.slice(1)),
      }
    }
    case 'append':
      return shell(appendCommand(intent.path, intent.text), `Added a line to the end of ${q(intent.path)}.`)
    case 'move': {
      const { path: from, to } = intent
      return one('move_file', { from, to }, () => `Moved ${q(from)} to ${q(to)}.`)
    }
    case 'copy': {
      const { path, to } = intent
      return shell(`cp -a -- ${quoteWord(path)} ${quoteWord(to)}`, `Copied ${q(path)} to ${q(to)}.`)
    }
    case 'delete':
      return one('delete_file', { path: intent.path, recursive: true }, () => `Deleted ${q(intent.path)}.`)
    case 'search': {
      const { text: pattern, path } = intent
      const searched = `Searched for ${q(pattern)} in ${nameFolder(path)}`
      return one('search_files', { pattern, path }, (output) => `${searched}:\n${output}`)
    }
    case 'count':
    case 'count-each':
    case 'occurrences':
    case 'count-files':
      return script({ code: writeCountScript(intent) })
    case 'chore':
      return script({ code: writeChoreScript(intent), timeoutMs: 300_000 })
    case 'list': {
      const { path, pattern } = intent
      if (pattern === '*')
        return one('list_files', { path }, (output) => `In ${nameFolder(path)}:\n${output}`)
      const names = patternsOf(pattern).map((each) => `-name ${quoteWord(each)}`)
      const command = `find ${quoteWord(path)} \\( ${names.join(' -o ')} \\) -not -path '*/.git/*' | sort | head -n 500`
      const listed = `Files named ${q(pattern)} in ${nameFolder(path)}`
      return one('run_bash', { command }, (output) => `${listed}:\n${output}`)
    }
    case 'read':
      return one('read_file', { path: intent.path }, (output) => `${q(intent.path)} says:\n${output}`)
    case 'run':
      return {
        calls: [{ name: 'run_bash', arguments: { command: intent.command } }],
        answer: ([ran]) => {
          const done = endedWell(ran) !== false
          const what = done ? 'Ran' : 'This command failed:'
          return { done, text: `${what} ${q(intent.command)}:\n${quoteOutput(ran?.output ?? '')}` }
        },
      }
    case 'ask': {
      const { question, options, confirm } = intent
      const kind = confirm ? 'confirm' : options.length === 0 ? 'text' : 'choice'
      const args = { question, kind, ...(options.length === 0 ? {} : { options }) }
      return one('ask_user', args, (output) => {
        const answer = /<answer>\n([\s\S]*)\n<\/answer>/.exec(output)?.[1]
        return `Asked ${q(question)}. The answer: ${answer ?? output}`
      })
    }
    case 'remember': {
      const proposed = `Proposed to remember ${q(intent.note)}.`
      return one('remember', { text: intent.note }, (output) => `${proposed} ${output}`, 300)
    }
    case 'recall': {
      const args = intent.query === '' ? {} : { query: intent.query }
      return one('recall', args, (output) => `What is remembered:\n${output}`)
    }
    case 'use-skill': {
      const { skill: skillId } = intent
      return one('load_skill', { skillId }, (output) => `The skill ${q(skillId)} says:\n${output}`)
    }
    case 'call-tool':
      return {
        calls: [{ name: intent.tool, arguments: JSON.parse(intent.args) }],
        answer: ([past]) => {
          const done = endedWell(past) !== false
          const what = done ? `${intent.tool} answered` : 'This program failed'
          return { done, text: `${what}:\n${quoteOutput(past?.output ?? '')}` }
        },
      }
    case 'calculate':
      return script({ code: writeSumScript(intent.expression), timeoutMs: 20_000 })
  }
}

/** One call; its answer is made from its output, truncated to `maxChars`. */
function one(
  name: string,
  args: Readonly<Record<string, unknown>>,
  answer: (output: string) => string,
  maxChars?: number,
): Turns {
  return {
    calls: [{ name, arguments: args }],
    answer: ([past]) => ({ done: true, text: answer(quoteOutput(past?.output ?? '', maxChars)) }),
  }
}

/** One of our Python scripts, which prints its answer. */
function script(args: Readonly<Record<string, unknown>>): Turns {
  return { calls: [{ name: 'run_python', arguments: args }], answer: ([ran]) => answersIn(ran) }
}

/** One of our commands, which must exit with 0. */
function shell(command: string, done: string): Turns {
  return {
    calls: [{ name: 'run_bash', arguments: { command } }],
    answer: ([ran]) => {
      if (endedWell(ran) === true) return { done: true, text: done }
      return { done: false, text: `this command failed: ${command}\n${quoteOutput(ran?.output ?? '')}` }
    },
  }
}

/** Most files that one order deletes. */
const deletesMax = 100

/** Finds the files by a script, then deletes each by its own call, so that the host's approvals see every one. */
function deleteFiles(
  intent: Extract<UserIntent, { kind: 'delete-files' }>,
  conversation: PastConversation,
  reasoning: string,
): OfflineReply {
  const [found, ...deleted] = conversation.calls
  const find = { ...intent, kind: 'chore', chore: 'find' } as const
  if (found === undefined)
    return call(conversation, 'run_python', { code: writeChoreScript(find) }, reasoning)
  const answer = answersIn(found)
  if (!answer.done) return conclude(answer, reasoning)
  const paths = readPaths(answer.text)
  if (paths === null) return sayNotDone(`the search gave no list of files:\n${answer.text}`, reasoning)
  if (paths.length > deletesMax) {
    const many = `${paths.length} files fit, and I delete no more than ${deletesMax} at once; nothing was deleted`
    return sayNotDone(`${many}.`, reasoning)
  }
  if (deleted.length > 0) {
    const list = paths.map((path) => `- ${path}`).join('\n')
    return say(`Deleted ${paths.length === 1 ? '1 file' : `${paths.length} files`}:\n${list}`, reasoning)
  }
  const calls = paths.map((path) => call(conversation, 'delete_file', { path }, reasoning))
  return (
    calls.find((reply) => reply.calls.length === 0) ?? {
      reasoning,
      text: '',
      calls: calls.flatMap((reply) => reply.calls),
    }
  )
}

function readPaths(text: string): string[] | null {
  try {
    const paths: unknown = JSON.parse(text)
    return Array.isArray(paths) ? paths.map(String) : null
  } catch {
    return null
  }
}

const abilities = [
  'I am a small set of rules, not a language model. I can: say what is here, what a project is and what changed in git;',
  'run the tests, the build, a command or a script; create, change, rename, move, copy or delete files; search, count, list and',
  'compare them; sort lines, indent JSON, convert a CSV file to JSON, add up a column of it and report on it; commit; fetch a web',
  'page; search the web; calculate; ask you a question; remember something; add notes to a proposal; apply a patch; start a',
  'sub-agent; call a tool by its name. Say one of these plainly, with names in quotes,',
  'or set NVIDIA_API_KEY (or CAISSON_LLM_URL with CAISSON_LLM_KEY and CAISSON_MODEL) for a real model.',
].join('\n')

/** Answers a task that no rule covers with a listing of the workspace. */
function look(reason: string, conversation: PastConversation, reasoning: string): OfflineReply {
  const [listed] = conversation.calls
  if (listed === undefined) return call(conversation, 'list_files', { path: '.' }, reasoning)
  const seen = `The workspace holds:\n${quoteOutput(listed.output, 2_000)}`
  return sayNotDone(
    `I could not do this task: ${reason}.\nNothing was changed. ${abilities}\n${seen}`,
    reasoning,
  )
}

/** After a failure: lists the workspace where that can help, then answers. */
function explainFailure(conversation: PastConversation, failed: number, reasoning: string): OfflineReply {
  const past = conversation.calls[failed]
  if (past?.errorCode === 'denied') return sayNotDone(describeDenial(past), reasoning)
  const looked = conversation.calls[failed + 1]
  const helps =
    past?.errorCode === 'not_found' && conversation.tools.has('list_files') && past.name !== 'list_files'
  if (looked === undefined && helps) {
    return call(
      conversation,
      'list_files',
      { path: '.' },
      `${reasoning} The path was not found, so I look at what is there.`,
    )
  }
  const seen =
    looked !== undefined && looked.errorCode === null
      ? `\nThe workspace holds:\n${quoteOutput(looked.output, 2_000)}`
      : ''
  return sayNotDone(`${past?.name}: ${quoteOutput(past?.output ?? '', 1_500)}${seen}`, reasoning)
}

function appendCommand(path: string, text: string): string {
  const file = quoteWord(path)
  // Ends the last line first if it has no line feed. Appending does not create a file.
  return `test -f ${file} && { test -z "$(tail -c 1 -- ${file})" || echo >> ${file}; } && printf '%s\\n' ${quoteWord(text)} >> ${file}`
}

function nameFolder(path: string): string {
  return path === '.' ? 'the workspace' : JSON.stringify(path)
}

/** Quotes a word so that no shell splits it and no program reads it as an option. */
function quoteWord(text: string): string {
  const safe = text.startsWith('-') ? `./${text}` : text
  return `'${safe.replaceAll("'", String.raw`'\''`)}'`
}
