#!/usr/bin/env bash
# Builds kernel, initramfs, the read-only root of the VM and its bill of materials from locked packages, without root
# rights and without touching the machine's package state. Same inputs and same tools give the same bytes.
# usage: build.sh --out FOLDER --cache FOLDER [--arch amd64|arm64] [--guest FOLDER] [--lock FILE] [--update-lock]
# CAISSON_APT_SOURCES names a folder like /etc/apt to take mirrors from, such as one of an archive of dated snapshots.
# Progress is `step NAME TEXT` on stdout; a failure is one line `caisson-image: ERROR CODE: TEXT` on stderr.
set -euo pipefail
export LC_ALL=C SOURCE_DATE_EPOCH=1704067200 PATH="$PATH:/usr/sbin:/sbin"
umask 022

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
arch=amd64 out='' cache='' guest=$here/guest update_lock='' lock=$here/packages.lock.json
release=bookworm
keyring=${CAISSON_APT_KEYRING:-/usr/share/keyrings/debian-archive-keyring.gpg}

step() { printf 'step %s\n' "$*"; }
fail() { printf 'caisson-image: ERROR %s: %s\n' "$1" "$2" >&2; exit 1; }

while [ $# -gt 0 ]; do
  case $1 in
    --out) out=$2; shift ;;
    --cache) cache=$2; shift ;;
    --arch) arch=$2; shift ;;
    --guest) guest=$2; shift ;;
    --lock) lock=$2; shift ;;
    --update-lock) update_lock=1 ;;
    *) fail usage "unknown option $1; see the head of build.sh" ;;
  esac
  shift
done
[ -n "$cache" ] || fail usage 'give --cache FOLDER'
[ -n "$out" ] || [ -n "$update_lock" ] || fail usage 'give --out FOLDER'
case $arch in
  amd64) npm_arch=x64 triplet=x86_64-linux-gnu loader=ld-linux-x86-64.so.2 ;;
  arm64) npm_arch=arm64 triplet=aarch64-linux-gnu loader=ld-linux-aarch64.so.1 ;;
  *) fail usage "unknown architecture $arch; known: amd64, arm64" ;;
esac

# shellcheck source-path=SCRIPTDIR source=lib/packages.sh
source "$here/lib/packages.sh"
# shellcheck source-path=SCRIPTDIR source=lib/root.sh
source "$here/lib/root.sh"
# shellcheck source-path=SCRIPTDIR source=lib/npm.sh
source "$here/lib/npm.sh"
# shellcheck source-path=SCRIPTDIR source=lib/initramfs.sh
source "$here/lib/initramfs.sh"

mkdir -p "$cache/downloads"
work=$(mktemp -d "$cache/build-XXXXXX")
trap 'chmod -R u+rwX "$work" 2>/dev/null; rm -rf "$work"' EXIT
trap 'exit 130' INT TERM HUP
# Who started us is gone: the next `step` finds no reader.
trap 'exit 141' PIPE

if [ -n "$update_lock" ]; then
  resolve_packages
  [ -n "$out" ] || exit 0
fi
mkdir -p "$out"
fetch_packages
fetch_node
fetch_npm
unpack_root
prune_root
configure_root
install_node
install_guest
install_pip
install_npm
compile_python
pack_root
pack_initramfs
write_sbom
step 'done' "$(du -bc "$out"/vmlinuz "$out"/initramfs "$out"/root.erofs | tail -n1 | awk '{ printf "%.0f MB", $1 / 1e6 }')"
