/** The changes of a run as files for the browser. */
import { ActionButton } from '../parts/parts.tsx'
import { useSession } from '../session/session.ts'

/** For whoever is not at the machine of the service. */
export function Downloads({ run }: { readonly run: string }) {
  const { client } = useSession()
  const params = { run }
  return (
    <>
      <ActionButton
        run={async () => save(`${run}.patch`, new Blob([await client.call('getPatch', { params })]))}
      >
        Download patch
      </ActionButton>
      <ActionButton
        run={async () =>
          save(`${run}.tar`, await new Response(await client.call('getChangedFiles', { params })).blob())
        }
      >
        Download files
      </ActionButton>
    </>
  )
}

/** A link cannot have the token, so the content is fetched first. */
function save(name: string, content: Blob): void {
  const link = document.createElement('a')
  link.href = URL.createObjectURL(content)
  link.download = name
  link.click()
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000)
}
