#!/usr/bin/env bash
# Fetches Debian's llama-server and the libraries it needs into DEST/root, from the machine's own Debian mirror.
# Nothing of the machine changes: a private apt root resolves the packages, and they are unpacked, not installed.
# usage: fetch.sh DEST; LLAMA_SUITE (default sid) names the suite, CAISSON_DEBIAN_MIRROR the mirror.
set -euo pipefail
dest=${1:?usage: fetch.sh DEST}
suite=${LLAMA_SUITE:-sid}

fail() {
  echo "llama-server: $*" >&2
  exit 3
}

for tool in apt-get dpkg-deb; do
  command -v "$tool" >/dev/null || fail "$tool is needed; this works on Debian and its relatives"
done

find_mirror() {
  cat /etc/apt/sources.list /etc/apt/sources.list.d/*.sources /etc/apt/sources.list.d/*.list 2>/dev/null |
    sed -n 's/^URIs: *\([^ ]*\).*/\1/p; s/^deb \(\[[^]]*\] \)\{0,1\}\([^ ]*\) .*/\2/p' |
    grep -v security | sed -n 1p
}
mirror=${CAISSON_DEBIAN_MIRROR:-$(find_mirror || true)}
[ -n "$mirror" ] || fail "no Debian mirror in the apt sources; set CAISSON_DEBIAN_MIRROR"

work=$dest/apt
rm -rf "$work" "$dest/root.new"
mkdir -p "$work"/lists/partial "$work"/cache/archives/partial "$work"/etc/preferences.d "$work"/etc/apt.conf.d "$dest/root.new"
: >"$work/status"
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $suite main" >"$work/etc/sources.list"
options=(
  -o "Dir::Etc=$work/etc" -o "Dir::Etc::sourcelist=$work/etc/sources.list" -o Dir::Etc::sourceparts=/dev/null
  -o "Dir::State::lists=$work/lists" -o "Dir::State::status=$work/status" -o "Dir::Cache=$work/cache"
  -o APT::Install-Recommends=0 -o Debug::NoLocking=1 -o APT::Architecture=amd64 -o Acquire::Languages=none
  -o Acquire::http::Timeout=30 -o Acquire::Retries=2
)
if [ "$(id -u)" = 0 ]; then options+=(-o APT::Sandbox::User=root); fi

timeout 180 apt-get "${options[@]}" update -qq >"$work/log" 2>&1 || fail "the mirror has no suite $suite: $(tail -n 1 "$work/log")"
timeout 300 apt-get "${options[@]}" -y --download-only install llama.cpp-tools >>"$work/log" 2>&1 ||
  fail "the mirror's suite $suite has no llama.cpp-tools that can be fetched: $(tail -n 1 "$work/log")"

# The closure holds more than a server needs; these are what it links to.
for package in "$work"/cache/archives/*.deb; do
  case $(basename "$package") in
    llama.cpp-tools_* | libllama0_* | libggml0_* | libc6_* | libgcc-s1_* | libstdc++6_* | libgomp1_* | libssl3* | libzstd1_* | \
      zlib1g_* | libcurl4* | libbrotli* | libnghttp* | openssl-provider-legacy_*)
      dpkg-deb -x "$package" "$dest/root.new"
      ;;
  esac
done
[ -x "$dest/root.new/usr/bin/llama-server" ] || fail "the packages of suite $suite hold no llama-server"
rm -rf "$dest/root"
mv "$dest/root.new" "$dest/root"
rm -rf "$work"
