# Sourced by build.sh: resolves and downloads Debian packages and Node's binary. Nothing enters the downloads
# folder but by its sha256; the machine's own apt state is never read for packages nor written.
# shellcheck shell=bash disable=SC2154

# Lists, caches and status of our own, on the machine's mirrors.
prepare_apt() {
  local apt=$work/apt
  [ ! -d "$apt" ] || return 0
  [ -r "$keyring" ] || fail tools_missing "$keyring; install it: apt-get install debian-archive-keyring"
  mkdir -p "$apt"/{lists/partial,cache/archives/partial,etc/preferences.d,etc/apt.conf.d}
  : >"$apt/status"
  node "$here/packages.mjs" sources "${CAISSON_APT_SOURCES:-/etc/apt}" "$release" "$keyring" >"$apt/etc/sources.list" 2>"$work/apt.log" ||
    fail download_failed "$(tail -n1 "$work/apt.log")"
  step lists "reading the package lists of $release"
  private_apt apt-get update -qq >"$work/apt.log" 2>&1 || : >"$work/apt.failed"
  # apt-get forgives a list that it could not fetch; an old or missing one would make us say that versions vanished.
  if [ -e "$work/apt.failed" ] || grep -q '^W: Failed to fetch' "$work/apt.log"; then
    fail download_failed "a package list could not be read: $(last_words "$work/apt.log"); check the network and /etc/apt"
  fi
}

# private_apt TOOL ARGUMENTS...
private_apt() {
  local tool=$1 apt=$work/apt
  shift
  "$tool" -o Dir::Etc="$apt/etc" -o Dir::Etc::sourcelist="$apt/etc/sources.list" -o Dir::Etc::sourceparts=/dev/null \
    -o Dir::State="$apt" -o Dir::State::lists="$apt/lists" -o Dir::State::status="$apt/status" -o Dir::Cache="$apt/cache" \
    -o APT::Install-Recommends=0 -o Debug::NoLocking=1 -o APT::Sandbox::User="$(id -un)" -o Acquire::Languages=none \
    -o APT::Architecture="$arch" -o APT::Architectures="$arch" -o pkgCacheGen::Essential=none "$@"
}

last_words() { grep -E '^[EW]: ' "$1" | tail -n 3 | tr '\n' ' ' || true; }

wanted() { sed -n "s/^$1 //p" "$here/packages.list" | sed "s/ARCH/$arch/"; }

# Resolves packages.list against the mirrors of today and writes the lock.
resolve_packages() {
  local name kernel rows=$work/resolved npm_version binary node_package=node-linux-$npm_arch
  prepare_apt
  # shellcheck disable=SC2046 # one word a package
  private_apt apt-get -y --print-uris install $(wanted root) >"$work/uris" 2>"$work/apt.log" ||
    fail download_failed "packages.list could not be resolved: $(last_words "$work/apt.log")"
  step resolve 'choosing package versions'
  # 'URI' NAME_VERSION_ARCH.deb SIZE HASH
  sed -n "s/^'[^']*' \([^_]*\)_.*/\1/p" "$work/uris" | grep -vxF -f <(wanted leave) | sort -u | sed 's/^/root /' >"$work/names"
  wanted initramfs | sed 's/^/initramfs /' >>"$work/names"
  kernel=$(private_apt apt-cache depends "$(wanted kernel)" | sed -n 's/^ *Depends: *\(linux-image-[^ ]*\).*/\1/p' | head -n1)
  [ -n "$kernel" ] || fail build_failed "$(wanted kernel) names no kernel package"
  echo "kernel $kernel" >>"$work/names"
  # shellcheck disable=SC2046 # one word a package
  private_apt apt-cache show --no-all-versions $(cut -d' ' -f2 "$work/names") | awk -v OFS='\t' '
      NR == FNR { role[$2] = $1; next }
      /^Package: /{n=$2} /^Version: /{v=$2} /^Architecture: /{a=$2} /^SHA256: /{s=$2} /^Size: /{z=$2}
      /^$/ && n { print role[n], n, v, a, s, z; n = "" } END { if (n) print role[n], n, v, a, s, z }' "$work/names" - >"$rows"
  npm_version=$(node -p "require('$here/../scripts/toolchain/package.json').optionalDependencies['$node_package']") ||
    fail build_failed 'the pinned Node of scripts/toolchain could not be read; update the lock in a checkout'
  binary=$(node_binary "$node_package" "$npm_version")
  node "$here/packages.mjs" write "$lock" "$release" "$arch" "$node_package" "$npm_version" \
    "$(sha256_of "$binary")" "$(stat -Lc %s "$binary")" <"$rows" || fail build_failed 'the lock could not be written'
  step resolve "$(wc -l <"$rows") packages locked"
}

sha256_of() { sha256sum "$1" | cut -d' ' -f1; }

# Fills downloads/ with every locked package; writes $work/debs: ROLE NAME FILE.
fetch_packages() {
  local role name version sha256 file missing=() drop
  node "$here/packages.mjs" packages "$lock" "$arch" >"$work/locked" 2>"$work/lock.log" ||
    fail lock_unreadable "$(tail -n1 "$work/lock.log")"
  : >"$work/debs"
  while IFS=$'\t' read -r role name version _ sha256 _; do
    [[ $sha256 =~ ^[0-9a-f]{64}$ && $name =~ ^[a-z0-9][a-z0-9+.-]+$ ]] || fail lock_unreadable "the lock's line for $name is not valid"
    file=$cache/downloads/$sha256.deb
    if [ ! -f "$file" ] || [ "$(sha256_of "$file")" != "$sha256" ]; then missing+=("$name=$version"); fi
    printf '%s %s %s\n' "$role" "$name" "$file" >>"$work/debs"
  done <"$work/locked"
  [ ${#missing[@]} -eq 0 ] && return
  drop=$work/drop
  mkdir -p "$drop"
  prepare_apt
  step download "${#missing[@]} packages"
  (cd "$drop" && private_apt apt-get -q download "${missing[@]}") >"$work/apt.log" 2>&1 || explain_download "$work/apt.log"
  for file in "$drop"/*.deb; do mv "$file" "$drop/$(sha256_of "$file")"; done
  while IFS=$'\t' read -r _ name version _ sha256 _; do
    [ -f "$drop/$sha256" ] && mv "$drop/$sha256" "$cache/downloads/$sha256.deb"
    [ -f "$cache/downloads/$sha256.deb" ] ||
      fail digest_mismatch "the mirror's $name $version is not the file in packages.lock.json (sha256 $sha256); if you trust the mirror run: caisson image build --update-lock"
  done <"$work/locked"
}

explain_download() {
  local gone
  gone=$(sed -n "s/^E: Version '\(.*\)' for '\(.*\)' was not found/\2 \1/p; s/^E: Unable to locate package \(.*\)/\1/p; s/^E: No packages found.*/a package/p" "$1" | paste -sd, | sed 's/,/, /g')
  [ -n "$gone" ] && fail lock_unsatisfied "the mirror no longer has: $gone; newer versions have replaced them. Run: caisson image build --update-lock"
  fail download_failed "$(last_words "$1"); check the network and start again"
}

# npm_pack PACKAGE@VERSION: fetches its archive into $work and prints the archive's name
npm_pack() {
  command -v npm >/dev/null || fail tools_missing "npm (apt-get install npm)"
  # This checkout's Node knows the machine's certificate authorities only when told: a proxy's may be among them.
  # A connection that stands still is given up and tried again, long before npm would by itself.
  (cd "$work" && NODE_USE_SYSTEM_CA=1 npm pack --loglevel=error --fetch-timeout=60000 --fetch-retries=5 \
    --fetch-retry-maxtimeout=10000 "$1" 2>"$work/npm.log") ||
    fail download_failed "npm could not fetch $1: $(sed '/complete log/d; s/^npm error //' "$work/npm.log" | head -n 4 | tr '\n' ' '); check the network and start again"
}

# node_binary PACKAGE VERSION: prints the path of bin/node, from this checkout's toolchain or from npm
node_binary() {
  local installed=$here/../scripts/toolchain/node_modules/$1 archive
  if [ -f "$installed/bin/node" ] && [ "$(node -p "require('$installed/package.json').version")" = "$2" ]; then
    echo "$installed/bin/node"
    return
  fi
  # A substitution does not inherit `set -e`.
  archive=$(npm_pack "$1@$2") || exit 1
  tar -xzf "$work/$archive" -C "$work" package/bin/node || fail build_failed "$1@$2 holds no bin/node"
  echo "$work/package/bin/node"
}

# Puts Node's locked binary at $node_file.
fetch_node() {
  local package version sha256 binary
  IFS=$'\t' read -r package version sha256 _ < <(node "$here/packages.mjs" node "$lock" "$arch")
  node_file=$cache/downloads/$sha256.node
  [ -f "$node_file" ] && [ "$(sha256_of "$node_file")" = "$sha256" ] && return
  step download "Node $version"
  binary=$(node_binary "$package" "$version")
  [ "$(sha256_of "$binary")" = "$sha256" ] ||
    fail digest_mismatch "bin/node of $package@$version is not the file in packages.lock.json (sha256 $sha256)"
  cp "$binary" "$node_file.$$" && mv "$node_file.$$" "$node_file"
}
