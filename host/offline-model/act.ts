/**
 * The offline step agent: for one intent and the calls made so far, the next turn. A failed call is looked into once,
 * by listing the place, and then reported; no call is ever repeated.
 */

import { actOnCsv } from './act-csv.ts'
import { actOnPage } from './act-page.ts'
import type { Conversation, PastCall } from './conversation.ts'
import type { Intent } from './intents.ts'
import {
  answersIn,
  call,
  conclude,
  describeDenial,
  endedWell,
  isNotDone,
  type Outcome,
  quoteOutput,
  type Reply,
  sayNotDone,
} from './reply.ts'
import { writeCountScript, writeSumScript } from './small-scripts.ts'

/** The next turn of a step. */
export function act(intent: Intent, conversation: Conversation): Reply {
  const reasoning = `The rule for "${intent.kind}" fits this step.`
  if (intent.kind === 'fetch-page' || intent.kind === 'summarise-page' || intent.kind === 'save-page') {
    return actOnPage(intent, conversation, reasoning)
  }
  const failed = conversation.calls.findIndex((past) => past.errorCode !== null)
  if (failed >= 0) return explainFailure(conversation, failed, reasoning)
  if (intent.kind === 'inspect-csv' || intent.kind === 'analyse-csv') {
    return actOnCsv(intent, conversation, reasoning)
  }
  if (intent.kind === 'look') return look(intent.reason, conversation, reasoning)
  const turns = turnsFor(intent)
  const done = conversation.calls.length
  const turn = turns.calls[done]
  if (turn !== undefined) return call(conversation, turn.name, turn.arguments, reasoning)
  return conclude(turns.answer(conversation.calls), reasoning)
}

/** The next turn of a step that holds several orders: each is carried out when the one before it is done. */
export function actInTurn(intents: readonly Intent[], conversation: Conversation): Reply {
  const answers: string[] = []
  let left = conversation.calls
  let reply: Reply | undefined
  for (const intent of intents) {
    let used = 0
    reply = act(intent, { ...conversation, calls: [] })
    // The calls that were made are those that its rule makes, in that order.
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
  answer(calls: readonly PastCall[]): Outcome
}

type PlainIntent = Exclude<
  Intent,
  { kind: 'inspect-csv' | 'analyse-csv' | 'fetch-page' | 'summarise-page' | 'save-page' | 'look' }
>

/** The calls of an intent in order, and what is said when all went well. */
function turnsFor(intent: PlainIntent): Turns {
  const q = JSON.stringify
  const one = (
    name: string,
    args: Record<string, unknown>,
    answer: (past: PastCall | undefined) => string,
  ): Turns => ({
    calls: [{ name, arguments: args }],
    answer: ([past]) => ({ done: true, text: answer(past) }),
  })
  switch (intent.kind) {
    case 'create':
      return one(
        'write_file',
        { path: intent.path, content: intent.content },
        (written) =>
          `Wrote ${q(intent.path)} (${Buffer.byteLength(intent.content)} bytes). ${quoteOutput(written?.output ?? '', 300)}`,
      )
    case 'make-folder':
      return shell(`mkdir -p -- ${quoteWord(intent.path)}`, `Made the folder ${q(intent.path)}.`)
    case 'replace':
      return {
        calls: [
          { name: 'read_file', arguments: { path: intent.path } },
          {
            name: 'edit_file',
            arguments: { path: intent.path, oldText: intent.from, newText: intent.to, replaceAll: true },
          },
        ],
        answer: ([, edit]) => ({
          done: true,
          text: `Replaced ${q(intent.from)} with ${q(intent.to)} in ${q(intent.path)}.\n${quoteOutput(edit?.output ?? '', 600)}`,
        }),
      }
    case 'append':
      return shell(appendCommand(intent.path, intent.text), `Added a line to the end of ${q(intent.path)}.`)
    case 'move':
      return one(
        'move_file',
        { from: intent.path, to: intent.to },
        () => `Moved ${q(intent.path)} to ${q(intent.to)}.`,
      )
    case 'copy':
      return shell(
        `cp -a -- ${quoteWord(intent.path)} ${quoteWord(intent.to)}`,
        `Copied ${q(intent.path)} to ${q(intent.to)}.`,
      )
    case 'delete':
      return one('delete_file', { path: intent.path, recursive: true }, () => `Deleted ${q(intent.path)}.`)
    case 'search':
      return one(
        'search_files',
        { pattern: intent.text, path: intent.path },
        (found) =>
          `Searched for ${q(intent.text)} in ${nameFolder(intent.path)}:\n${quoteOutput(found?.output ?? '')}`,
      )
    case 'count':
    case 'count-each':
    case 'occurrences':
    case 'count-files':
      return script({ code: writeCountScript(intent) })
    case 'list':
      if (intent.pattern !== '*') {
        const command = `find ${quoteWord(startPath(intent.path))} -name ${quoteWord(intent.pattern)} -not -path '*/.git/*' | sort | head -n 500`
        return one(
          'run_bash',
          { command },
          (found) =>
            `Files named ${q(intent.pattern)} in ${nameFolder(intent.path)}:\n${quoteOutput(found?.output ?? '')}`,
        )
      }
      return one(
        'list_files',
        { path: intent.path },
        (listed) => `In ${nameFolder(intent.path)}:\n${quoteOutput(listed?.output ?? '')}`,
      )
    case 'read':
      return one(
        'read_file',
        { path: intent.path },
        (read) => `${q(intent.path)} says:\n${quoteOutput(read?.output ?? '')}`,
      )
    case 'run':
      return {
        calls: [{ name: 'run_bash', arguments: { command: intent.command } }],
        answer: ([ran]) => {
          const done = endedWell(ran) !== false
          const what = done ? 'Ran' : 'This command did not end well:'
          return { done, text: `${what} ${q(intent.command)}:\n${quoteOutput(ran?.output ?? '')}` }
        },
      }
    case 'ask': {
      const { question, options, confirm } = intent
      const kind = confirm ? 'confirm' : options.length === 0 ? 'text' : 'choice'
      const args = { question, kind, ...(options.length === 0 ? {} : { options }) }
      return one('ask_user', args, (asked) => {
        const answer = /<answer>\n([\s\S]*)\n<\/answer>/.exec(asked?.output ?? '')?.[1]
        return `Asked ${q(question)}. The answer: ${quoteOutput(answer ?? asked?.output ?? '')}`
      })
    }
    case 'remember':
      return one(
        'remember',
        { text: intent.note },
        (proposed) => `Proposed to remember ${q(intent.note)}. ${quoteOutput(proposed?.output ?? '', 300)}`,
      )
    case 'recall':
      return one(
        'recall',
        intent.query === '' ? {} : { query: intent.query },
        (found) => `What is remembered:\n${quoteOutput(found?.output ?? '')}`,
      )
    case 'use-skill':
      return one(
        'load_skill',
        { skillId: intent.skill },
        (loaded) => `The skill ${q(intent.skill)} says:\n${quoteOutput(loaded?.output ?? '')}`,
      )
    case 'calculate':
      return script({ code: writeSumScript(intent.expression), timeoutMs: 20_000 })
  }
}

/** A Python script of ours, which prints its answer. */
function script(args: Readonly<Record<string, unknown>>): Turns {
  return { calls: [{ name: 'run_python', arguments: args }], answer: ([ran]) => answersIn(ran) }
}

/** A command of ours that must end with 0. */
function shell(command: string, done: string): Turns {
  return {
    calls: [{ name: 'run_bash', arguments: { command } }],
    answer: ([ran]) =>
      endedWell(ran) === true
        ? { done: true, text: done }
        : {
            done: false,
            text: `the command did not succeed: ${command}\n${quoteOutput(ran?.output ?? '')}`,
          },
  }
}

/** What the model says about a task it has no rule for, from what it sees in the workspace. */
function look(reason: string, conversation: Conversation, reasoning: string): Reply {
  const [listed] = conversation.calls
  if (listed === undefined) return call(conversation, 'list_files', { path: '.' }, reasoning)
  return sayNotDone(
    [
      `I could not do this task: ${reason}.`,
      'Nothing was changed. I am a small set of rules, not a language model. I can: analyse a CSV file; create, change,',
      'rename, copy or delete files; search, count and list; run a command or a script; fetch a web page; calculate; ask you a question; remember something. Say one of these plainly,',
      'with names in quotes, or set NVIDIA_API_KEY (or CAISSON_LLM_URL with CAISSON_LLM_KEY and CAISSON_MODEL) for a real model.',
      `The workspace holds:\n${quoteOutput(listed.output, 2_000)}`,
    ].join('\n'),
    reasoning,
  )
}

/** After a failure: one look at the place where that can help, then the answer. */
function explainFailure(conversation: Conversation, failed: number, reasoning: string): Reply {
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
  // A last line without an end gets one first; a file that does not exist is not made by adding to it.
  return `test -f ${file} && { test -z "$(tail -c 1 -- ${file})" || echo >> ${file}; } && printf '%s\\n' ${quoteWord(text)} >> ${file}`
}

function nameFolder(path: string): string {
  return path === '.' ? 'the workspace' : JSON.stringify(path)
}

/** A word that no shell takes apart, and that no program takes for an option. */
function quoteWord(text: string): string {
  const safe = text.startsWith('-') ? `./${text}` : text
  return `'${safe.replaceAll("'", String.raw`'\''`)}'`
}

function startPath(path: string): string {
  return path.startsWith('-') ? `./${path}` : path
}
