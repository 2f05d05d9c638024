# Sourced by build.sh: npm for the programs of the guest, from its own archive on the npm registry. It would be a
# twentieth of the root unpacked, so it lies there packed and unpacks itself at its first use.
# shellcheck shell=bash disable=SC2154

npm_version=11.21.2
npm_sha256=8ad8563b81e71b90ef405b140bccf3ba9b5e7884ab210bd49ee4e2f4bc6f61f5

# Puts npm's locked archive at $npm_file.
fetch_npm() {
  local archive
  npm_file=$cache/downloads/$npm_sha256.npm
  [ -f "$npm_file" ] && [ "$(sha256_of "$npm_file")" = "$npm_sha256" ] && return
  step download "npm $npm_version"
  archive=$(npm_pack "npm@$npm_version")
  [ "$(sha256_of "$work/$archive")" = "$npm_sha256" ] ||
    fail digest_mismatch "npm@$npm_version is not the file that lib/npm.sh names (sha256 $npm_sha256)"
  mv "$work/$archive" "$npm_file.$$" && mv "$npm_file.$$" "$npm_file"
}

# Called before byte code is made: what packs it is the image's own Python.
install_npm() {
  local root=$work/root
  mkdir -p "$work/npm"
  tar -xzf "$npm_file" -C "$work/npm" --strip-components=1 --no-same-owner
  step prune 'documents of npm'
  rm -rf "$work/npm/docs" "$work/npm/man"
  find "$work/npm" -type f \( -iname 'README*' -o -iname 'CHANGELOG*' -o -iname 'HISTORY*' -o -name '*.md' -o -name '*.map' \
    -o -name '*.d.ts' -o -name '*.d.cts' -o -name '*.d.mts' \) -not -iname 'LICENSE*' -delete
  run_python "$here/lib/pack.py" "$work/npm" "$root/usr/lib/caisson/npm.tar.xz" ||
    fail build_failed 'npm could not be packed'
  sed "s/@VERSION@/$npm_version/" "$here/lib/npm-first-use" >"$root/usr/bin/npm"
  chmod 0755 "$root/usr/bin/npm"
  ln -sf npm "$root/usr/bin/npx"
}
