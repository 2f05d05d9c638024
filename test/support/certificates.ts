/** Certificate authorities and certificates for tests of TLS, made with Debian's `openssl`. */
import { execFile } from 'node:child_process'
import { writeFile } from 'node:fs/promises'
import path from 'node:path'
import { promisify } from 'node:util'

export interface Signed {
  /** Paths of files in PEM form. */
  readonly cert: string
  readonly key: string
}

export interface Subject {
  /** The common name. */
  readonly name: string
  /** Such as `DNS:localhost`. Absent: none. */
  readonly altNames?: string
  /** Both `YYYYMMDDHHMMSSZ`. Absent: from now on, for a day. */
  readonly validity?: readonly [string, string]
}

export class Authority {
  /** Path of its certificate in PEM form. */
  readonly cert: string
  readonly #folder: string
  readonly #key: string
  #count = 0

  private constructor(folder: string, name: string) {
    this.#folder = folder
    this.cert = path.join(folder, `${name}.crt`)
    this.#key = path.join(folder, `${name}.key`)
  }

  static async create(folder: string, name: string): Promise<Authority> {
    const authority = new Authority(folder, name)
    const subject = ['-subj', `/CN=${name}`, '-keyout', authority.#key, '-out', authority.cert]
    await openssl('req', '-x509', ...newKey, '-days', '1', ...subject)
    return authority
  }

  async sign({ name, altNames, validity }: Subject): Promise<Signed> {
    this.#count += 1
    const place = path.join(this.#folder, `${path.basename(this.cert, '.crt')}-${this.#count}`)
    const signed = { cert: `${place}.crt`, key: `${place}.key` }
    const files = ['-subj', `/CN=${name}`, '-keyout', signed.key, '-out', signed.cert]
    const names = altNames === undefined ? [] : ['-addext', `subjectAltName=${altNames}`]
    const how = ['-CA', this.cert, '-CAkey', this.#key, ...names, '-addext', 'basicConstraints=CA:FALSE']
    if (validity === undefined) await openssl('req', '-x509', ...newKey, '-days', '1', ...how, ...files)
    else await this.#signFor(place, validity, [...files.slice(0, 4)], altNames)
    return signed
  }

  /** Of a validity that has passed, which `openssl req` cannot give. */
  async #signFor(place: string, validity: readonly [string, string], subject: string[], altNames = '') {
    const [from, until] = validity
    await openssl('req', '-new', ...newKey, ...subject, '-out', `${place}.csr`)
    await writeFile(`${place}.index`, '')
    const settings = [
      ...['[ca]', 'default_ca=this', '[this]', `database=${place}.index`, 'default_md=sha256'],
      ...['policy=any', 'rand_serial=yes', `new_certs_dir=${this.#folder}`, 'x509_extensions=more'],
      ...['[any]', 'commonName=supplied', '[more]', `subjectAltName=${altNames}`, ''],
    ]
    await writeFile(`${place}.cnf`, settings.join('\n'))
    const files = ['-cert', this.cert, '-keyfile', this.#key, '-in', `${place}.csr`, '-out', `${place}.crt`]
    const dates = ['-startdate', from, '-enddate', until]
    await openssl('ca', '-batch', '-notext', '-config', `${place}.cnf`, ...dates, ...files)
  }
}

const newKey = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes']

async function openssl(...given: string[]): Promise<void> {
  await promisify(execFile)('openssl', given, { timeout: 30_000 })
}
