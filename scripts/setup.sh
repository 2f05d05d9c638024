# Sourced by scripts/run and scripts/test: Debian packages, the pinned Node and the npm packages, each only when missing.
# Sets `root` and puts Node on PATH. Asks before apt; --yes or CI=true answers. Never runs twice what is done.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
toolchain=$root/scripts/toolchain

say() { printf 'setup: %s\n' "$*" >&2; }
give_up() { printf 'setup: %s\n' "$*" >&2; exit 4; }

# program:package pairs, or file:package, that running needs; scripts/test adds what only tests need
needed_packages=(
  qemu-system-x86_64:qemu-system-x86 qemu-img:qemu-utils mkfs.erofs:erofs-utils bwrap:bubblewrap
  zstd:zstd cpio:cpio python3:python3 strip:binutils flock:util-linux
)

missing_packages() {
  local pair program
  for pair in "$@"; do
    program=${pair%%:*}
    if [[ $program == /* ]]; then [ -e "$program" ]; else PATH=$PATH:/usr/sbin:/sbin command -v "$program" >/dev/null 2>&1; fi ||
      echo "${pair#*:}"
  done
}

ensure_packages() {
  local missing sudo=() size answer
  mapfile -t missing < <(missing_packages "$@")
  [ ${#missing[@]} -eq 0 ] && return
  command -v apt-get >/dev/null 2>&1 || give_up "these programs are missing and there is no apt-get to install them: ${missing[*]}"
  if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null 2>&1 || give_up "run this as root, then start again: apt-get install --no-install-recommends ${missing[*]}"
    sudo=(sudo)
  fi
  size=$(LC_ALL=C apt-get install --no-install-recommends --assume-no "${missing[@]}" 2>/dev/null | grep -E '^(Need to get|After this)' | tr '\n' ' ' || true)
  say "Debian packages to install: ${missing[*]} ${size}"
  if [ "${assume_yes:-}" != 1 ] && [ "${CI:-}" != true ]; then
    [ -t 0 ] || give_up "installing needs a yes: start again with --yes"
    read -r -p "setup: install them with ${sudo[*]:+sudo }apt-get? [y/N] " answer
    [[ $answer == [yY]* ]] || give_up "not installed; nothing was changed"
  fi
  "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get update -qq >&2 || give_up "apt-get update failed"
  "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >&2 ||
    give_up "apt-get install failed"
}

# npm_install FOLDER: npm ci when the lock file is not the one that was installed last
npm_install() {
  local lock stamp=$1/node_modules/.caisson-lock
  lock=$(sha256sum "$1/package-lock.json" | cut -d' ' -f1)
  [ "$(cat "$stamp" 2>/dev/null)" = "$lock" ] && return
  # Two installs at once would remove each other's files; the second one finds the work done.
  exec 8<"$1/package-lock.json"
  if command -v flock >/dev/null 2>&1; then flock 8; fi
  [ "$(cat "$stamp" 2>/dev/null)" = "$lock" ] && { exec 8<&-; return; }
  say "npm packages in ${1#"$root"/}"
  # The certificates that this machine trusts, a company's own among them, as the system's Node would use.
  (cd "$1" && NODE_USE_SYSTEM_CA=1 npm ci --no-audit --no-fund --no-update-notifier --loglevel=error >&2) || give_up "npm ci failed in $1"
  echo "$lock" >"$stamp"
  exec 8<&-
}

ensure_node() {
  local platform
  platform=$(uname -s)-$(uname -m)
  case $platform in
    Linux-x86_64) platform=linux-x64 ;;
    Linux-aarch64) platform=linux-arm64 ;;
    *)
      [ "$(node -p 'process.versions.node.split(".")[0] >= 24' 2>/dev/null)" = true ] || give_up "install Node 24 or later first"
      return
      ;;
  esac
  command -v npm >/dev/null 2>&1 || give_up "npm is missing: apt-get install npm"
  npm_install "$toolchain"
  PATH=$toolchain/node_modules/node-$platform/bin:$PATH
}

setup() {
  ensure_packages "${needed_packages[@]}"
  ensure_node
  npm_install "$root"
  export PATH
}
