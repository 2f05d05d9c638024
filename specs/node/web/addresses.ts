/** Decides which addresses are on the public internet. Anything not known to be public counts as internal. */
import { isIP } from 'node:net'
import ipaddr from 'ipaddr.js'

/** Cloud metadata addresses with a machine's own credentials. */
const metadata = new Set([
  '169.254.169.254',
  '169.254.170.2',
  '100.100.100.200',
  '168.63.129.16',
  'fd00:ec2::254',
])

const words: Readonly<Record<string, string>> = {
  unspecified: 'this machine (unspecified)',
  loopback: 'this machine (loopback)',
  private: 'a private network',
  uniqueLocal: 'a private network',
  deprecatedSiteLocal: 'a private network',
  linkLocal: 'the local link',
  carrierGradeNat: 'a provider’s inner network',
  multicast: 'multicast',
  broadcast: 'broadcast',
  '6to4': 'an IPv4 address inside an IPv6 one (6to4)',
  teredo: 'an IPv4 address inside an IPv6 one (Teredo)',
  rfc6145: 'an IPv4 address inside an IPv6 one',
}

/**
 * Why an address is not public; null when it is public.
 * @param address IPv4 in four decimals or IPv6 without brackets; anything else counts as not public
 */
export function notPublic(address: string): string | null {
  const [plain = '', zone] = address.split('%')
  const family = isIP(plain)
  if (family === 0) return 'not an address'
  // The library reads ::1.2.3.4 as the IPv4 address in it, the system does not; hexadecimal is unambiguous.
  const parsed = ipaddr.process(family === 4 ? plain : new URL(`http://[${plain}]`).hostname.slice(1, -1))
  if (metadata.has(parsed.toString())) return 'a cloud’s metadata service'
  if (zone !== undefined) return 'the local link'
  return parsed instanceof ipaddr.IPv6 ? notPublic6(parsed) : notPublic4(parsed)
}

/**
 * As above for a host before name resolution: addresses, and names that mean this machine by definition (RFC 6761).
 * Null for any other name.
 */
export function hostInside(host: string): string | null {
  if (host === 'localhost' || host.endsWith('.localhost')) return 'this machine'
  return isIP(host) === 0 ? null : notPublic(host)
}

/** The IPv4 address behind a NAT64 IPv6 address; null for any other. */
export function behindNat64(address: string): string | null {
  if (isIP(address) !== 6 || address.includes('%')) return null
  const parsed = ipaddr.IPv6.parse(address)
  return parsed.match(nat64) ? lastFourBytes(parsed) : null
}

/** Minimum prefix length of a local network; a wider prefix is a route to everything. */
const ownMinBits = { ipv4: 16, ipv6: 48 } as const

/**
 * Whether a public address is on the network of one of this machine's interfaces.
 * @param cidr of the interface, such as `2001:db8::5/64`
 */
export function isBeside(address: string, cidr: string): boolean {
  if (isIP(address) === 0 || !ipaddr.isValidCIDR(cidr)) return false
  const parsed = ipaddr.parse(address)
  const [network, bits] = ipaddr.parseCIDR(cidr)
  return (
    parsed.kind() === network.kind() && bits >= ownMinBits[parsed.kind()] && parsed.match([network, bits])
  )
}

function lastFourBytes(address: ipaddr.IPv6): string {
  return ipaddr.fromByteArray(address.toByteArray().slice(12)).toString()
}

function notPublic4(address: ipaddr.IPv4): string | null {
  const range = address.range()
  return range === 'unicast' ? null : (words[range] ?? 'a reserved range')
}

/** The only block ever allocated for the internet. */
const internet6 = ipaddr.IPv6.parseCIDR('2000::/3')
const nat64 = ipaddr.IPv6.parseCIDR('64:ff9b::/96')

function notPublic6(address: ipaddr.IPv6): string | null {
  // Networks without IPv4 give every IPv4 host such an address: check the embedded one.
  if (address.match(nat64)) {
    const inside = notPublic(lastFourBytes(address))
    return inside === null ? null : `${inside}, inside an IPv6 address`
  }
  const range = address.range()
  if (range !== 'unicast') return words[range] ?? 'a reserved range'
  return address.match(internet6) ? null : 'a reserved range'
}
