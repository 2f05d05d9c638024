/** Switches notifications of this browser on and off. Without a push service or TLS there is nothing to switch. */
import { useEffect, useState } from 'preact/hooks'
import type { ServiceClient } from '../../client/index.ts'
import { useSession } from '../session/session.ts'
import { ActionButton } from './parts.tsx'

interface Policy {
  createScriptURL(text: string): string
}
interface Policies {
  createPolicy(name: string, rules: { createScriptURL(): string }): Policy
}

/** The one address that becomes a script, so that no text can. */
const workers = (globalThis as { trustedTypes?: Policies }).trustedTypes?.createPolicy('caisson-worker', {
  createScriptURL: () => '/page/worker.js',
})

const isPossible = 'serviceWorker' in navigator && 'PushManager' in globalThis

async function findSubscription(): Promise<PushSubscription | null> {
  const registration = await navigator.serviceWorker.getRegistration('/page/')
  return (await registration?.pushManager.getSubscription()) ?? null
}

/** @returns the id by which the service knows the browser */
async function tell(client: ServiceClient, subscription: PushSubscription): Promise<string> {
  const { endpoint = '', keys = {} } = subscription.toJSON()
  const { p256dh = '', auth = '' } = keys
  const body = { endpoint, keys: { p256dh, auth } }
  return (await client.call('addPushSubscription', { body })).id
}

async function subscribe(client: ServiceClient): Promise<PushSubscription> {
  if ((await Notification.requestPermission()) !== 'granted')
    throw new Error('This browser does not allow notifications of this page; allow them in its settings')
  await navigator.serviceWorker.register(workers?.createScriptURL('') ?? '/page/worker.js')
  const { publicKey } = await client.call('getPushKey', {})
  const registration = await navigator.serviceWorker.getRegistration('/page/')
  if (registration === undefined) throw new Error('The worker of this page could not be registered')
  const made = await registration.pushManager.subscribe({
    userVisibleOnly: true,
    applicationServerKey: publicKey,
  })
  await tell(client, made)
  return made
}

export function NotifyButton() {
  const { client } = useSession()
  const [subscription, setSubscription] = useState<PushSubscription | null>()
  useEffect(() => {
    if (!isPossible) return
    findSubscription().then(
      (found) => {
        setSubscription(found)
        // The service forgets those of a JWT after a day.
        if (found !== null) void tell(client, found).catch(() => undefined)
      },
      () => setSubscription(null),
    )
  }, [client])
  if (!isPossible || subscription === undefined) return null
  const toggle = async () => {
    if (subscription === null) return setSubscription(await subscribe(client))
    // Without the service too: it then learns of it with its next message.
    const id = await tell(client, subscription).catch(() => undefined)
    await subscription.unsubscribe()
    setSubscription(null)
    if (id !== undefined) await client.call('removePushSubscription', { params: { browser: id } })
  }
  return (
    <ActionButton run={toggle}>
      {subscription === null ? 'Notify me of questions' : 'Stop notifications'}
    </ActionButton>
  )
}
