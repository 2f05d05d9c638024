// Notifications of the page in a real browser. It has no push service, so its subscription is one of the test, and what the
// service sends there is delivered to the worker by the browser's own debugger.
import { readFile } from 'node:fs/promises'
import path from 'node:path'
import { expect, it } from 'vitest'
import { Host } from '../../host/index.ts'
import { runAtWork } from '../../host/test/support/run-at-work.ts'
import { runId, runStart } from '../../host/test/support/run-values.ts'
import { noticeTimes } from '../service/notify-support.ts'
import { makeBrowser, servePush } from '../service/push-service.ts'
import { serveHost } from '../service/support.ts'
import { axeFindings, sees, useBrowser } from './support.ts'

const open = useBrowser()

it('the page subscribes and unsubscribes by a button, and its worker shows a message and keeps it as text [H.02]', async () => {
  const run = await runAtWork()
  await run.record.host(runStart)
  const push = await servePush()
  const browser = makeBrowser(`${push.url}/page`)
  const host = new Host({ env: run.env, config: { notify: { afterMs: 0, localPush: true } } })
  const served = await serveHost(host, { noticeTimes })
  const { page, complaints } = await open(`${served.service.url}/#token=${served.token}`, {
    permissions: ['notifications'],
  })
  await page.evaluate(
    `PushManager.prototype.subscribe = async () => ({
      toJSON: () => (${JSON.stringify(browser.subscription)}),
      unsubscribe: async () => true,
    })`,
  )
  const debug = await page.context().newCDPSession(page)
  const registered = new Promise<string>((resolve) =>
    debug.on('ServiceWorker.workerRegistrationUpdated', ({ registrations }) => {
      const [found] = registrations
      if (found !== undefined) resolve(found.registrationId)
    }),
  )
  await debug.send('ServiceWorker.enable')
  await page.getByRole('button', { name: 'Notify me of questions' }).click()
  await page.getByRole('button', { name: 'Stop notifications' }).waitFor()
  expect(await axeFindings(page)).toEqual([])
  void run.ask({ question: '<b>Which</b> color?', kind: 'text' }, 'q1')
  await expect.poll(() => push.got.length).toBe(1)
  const data = browser.decrypt(push.got[0]?.body ?? Buffer.alloc(0))
  const registrationId = await registered
  const origin = served.service.url
  await page.evaluate(`navigator.serviceWorker.getRegistration('/page/').then(({ active, installing, waiting }) =>
    active?.state === 'activated' || new Promise((resolve) =>
      (installing ?? waiting ?? active).addEventListener('statechange', ({ target }) =>
        target.state === 'activated' && resolve(true))))`)
  const shown = async () =>
    (await page.evaluate(`navigator.serviceWorker.getRegistration('/page/')
      .then((registration) => registration.getNotifications())
      .then((list) => list.map(({ title, body, data }) => ({ title, body, data })))`)) as unknown[]
  for (const message of [data, data, '{"title":7,"runId":"../x"}', 'no JSON'])
    await debug.send('ServiceWorker.deliverPushMessage', { origin, registrationId, data: message })
  // The same question once; of what is no message a word of the page.
  await expect.poll(async () => (await shown()).length).toBeGreaterThanOrEqual(2)
  expect(await shown()).toContainEqual({
    ...{ title: 'The agent asks you', body: '<b>Which</b> color?', data: { run: runId } },
  })
  expect(JSON.stringify(await shown())).not.toContain('../x')
  expect((await shown()).filter((one) => JSON.stringify(one).includes('color'))).toHaveLength(1)
  const subscribed = () => readFile(path.join(String(run.env.CAISSON_HOME), 'service/push.json'), 'utf8')
  expect(await subscribed()).toContain(browser.subscription.endpoint)
  await page.getByRole('button', { name: 'Stop notifications' }).click()
  await page.getByRole('button', { name: 'Notify me of questions' }).waitFor()
  await expect.poll(subscribed).toBe('{"subscriptions":[]}')
  // A click shows the run in the page that is open. The browser lets no program click, so its event is made.
  const [worker] = page.context().serviceWorkers()
  await worker?.evaluate(`self.registration.getNotifications().then((list) => {
    const notification = list.find(({ data }) => data.run === '${runId}')
    self.dispatchEvent(new NotificationEvent('notificationclick', { notification }))
  })`)
  await page.waitForURL(`**/#/runs/${runId}`)
  await sees(page, 'Which')
  await expect.poll(async () => JSON.stringify(await shown())).not.toContain('color')
  expect(complaints).toEqual([])
}, 120_000)
