// How an application tests its tools and workflows without a model. Run with `node --test`.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { calls, createScriptedModel, text } from 'caisson/testing'
import { answerCustomer } from './order-desk.ts'

test('the customer learns what the tool found', async () => {
  const model = createScriptedModel({
    replies: [calls({ name: 'find_order', arguments: { id: 'A-18' } }), text('Your chair waits for wood.')],
  })
  assert.equal(await answerCustomer('Where is A-18?', model.callModel), 'Your chair waits for wood.')
  // What the model gets is what the tool is for.
  assert.equal(model.requests[1]?.lastResult, '{"item":"chair","state":"waiting for wood"}')
  model.assertDone()
})

test('a call that makes no sense is answered, not thrown', async () => {
  const model = createScriptedModel({
    rules: [
      { when: { turn: 0 }, reply: calls({ name: 'find_order', arguments: '{"id":' }, { name: 'sell_shop' }) },
      { when: { result: 'no such tool' }, reply: text('I am sorry.') },
    ],
  })
  assert.equal(await answerCustomer('Sell me everything', model.callModel), 'I am sorry.')
  model.assertDone()
})

test('a model that goes round in circles does not keep the customer waiting', async () => {
  const model = createScriptedModel({
    rules: [{ reply: calls({ name: 'find_order', arguments: { id: 'A-17' } }) }],
  })
  assert.equal(await answerCustomer('Where is A-17?', model.callModel), undefined)
  assert.ok(model.requests.length < 10)
})

test('a workflow that asks otherwise than the script says fails with what it asked', async () => {
  const model = createScriptedModel({
    rules: [{ name: 'chairs', when: { user: /chair/ }, reply: text('Wood.') }],
  })
  await assert.rejects(
    answerCustomer('Where is my lamp?', model.callModel),
    /no reply to request 1: user "Where is my lamp\?"/,
  )
  assert.throws(() => model.assertDone(), /chairs: text "Wood\."/)
})

test('the same script serves any client of the protocol', async () => {
  await using model = createScriptedModel({ replies: [text('Good morning.')] })
  const response = await fetch(`${await model.listen()}/chat/completions`, {
    method: 'POST',
    body: JSON.stringify({ model: 'any', messages: [{ role: 'user', content: 'Hello' }] }),
  })
  const answer = (await response.json()) as { choices: { message: { content: string } }[] }
  assert.equal(answer.choices[0]?.message.content, 'Good morning.')
  model.assertDone()
})
