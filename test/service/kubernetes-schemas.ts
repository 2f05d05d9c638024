/** Checks manifests by the schemas of Kubernetes, as the package kubernetes-models has them. */

export interface Manifest {
  readonly apiVersion: string
  readonly kind: string
}

interface Problem {
  readonly instancePath: string
  readonly keyword: string
  readonly params: Readonly<Record<string, unknown>>
}

interface Validate {
  (value: unknown): boolean
  readonly errors?: readonly Problem[] | null
}

/** One line for each wrong value, and for each field that the schema does not have. */
export async function problemsOf(manifest: Manifest): Promise<string[]> {
  const { validate } = (await import(`kubernetes-models/_schemas/${schemaOf(manifest)}`)) as {
    readonly validate: Validate
  }
  const asked = new Set<string>()
  const isValid = validate(watch(manifest, '', asked))
  const wrong = isValid ? [] : (validate.errors ?? []).map(sayProblem)
  return [
    ...wrong,
    ...fieldsOf(manifest, '')
      .filter((field) => !asked.has(field))
      .map((at) => `${at} is no field`),
  ]
}

/** Such as `IoK8sApiAppsV1StatefulSet`. */
function schemaOf({ apiVersion, kind }: Manifest): string {
  const [group = '', version = ''] = apiVersion.includes('/') ? apiVersion.split('/') : ['core', apiVersion]
  const words = [group.split('.')[0] ?? '', version, kind]
  return `IoK8sApi${words.map((word) => `${word.charAt(0).toUpperCase()}${word.slice(1)}`).join('')}`
}

const sayProblem = ({ instancePath, keyword, params }: Problem) => {
  if (keyword === 'type') return `${instancePath} must be ${String(params.type)}`
  if (keyword === 'enum') return `${instancePath} must be equal to one of ${String(params.allowedValues)}`
  if (keyword === 'required') return `${instancePath} lacks ${String(params.missingProperty)}`
  return `${instancePath} must match ${keyword} ${JSON.stringify(params)}`
}

/** The validators accept unknown fields. They look at each field that they know, so what they never look at is unknown. */
function watch(value: unknown, at: string, asked: Set<string>): unknown {
  if (typeof value !== 'object' || value === null) return value
  return new Proxy(value, {
    get: (target, name, receiver) => {
      const place = `${at}/${String(name)}`
      asked.add(place)
      return watch(Reflect.get(target, name, receiver), place, asked)
    },
  })
}

function fieldsOf(value: unknown, at: string): string[] {
  if (typeof value !== 'object' || value === null) return []
  return Object.entries(value).flatMap(([name, below]) => [
    `${at}/${name}`,
    ...fieldsOf(below, `${at}/${name}`),
  ])
}
