# Sourced by build.sh: takes the kernel out of its package and packs the initramfs: a static busybox, the modules of
# initramfs/modules in the order of loading, and initramfs/init.
# shellcheck shell=bash disable=SC2154

pack_initramfs() {
  local kernel busybox ram=$work/initramfs name number=10 module
  step pack 'kernel and initramfs'
  kernel=$(awk '$1 == "kernel" { print $3 }' "$work/debs")
  busybox=$(awk '$1 == "initramfs" { print $3 }' "$work/debs")
  mkdir -p "$work/kernel" "$work/busybox" "$ram"/{bin,modules,dev,proc,sys,lower,layer,root}
  dpkg-deb --fsys-tarfile "$kernel" | tar -x -C "$work/kernel" --no-same-owner --wildcards './boot/vmlinuz-*' './lib/modules/*.ko' './usr/share/doc/*/copyright'
  dpkg-deb --fsys-tarfile "$busybox" | tar -x -C "$work/busybox" --no-same-owner
  cp "$work"/kernel/boot/vmlinuz-* "$out/vmlinuz"
  chmod 0644 "$out/vmlinuz"
  cp "$work/busybox/bin/busybox" "$ram/bin/busybox"
  ln -s busybox "$ram/bin/sh"
  install -m 0755 "$here/initramfs/init" "$ram/init"
  while read -r name; do
    module=$(find "$work/kernel/lib/modules" -name "$name.ko")
    [ -n "$module" ] || fail build_failed "the kernel package holds no module $name"
    cp "$module" "$ram/modules/$number-$name.ko"
    number=$((number + 1))
  done < <(grep -v '^#' "$here/initramfs/modules")
  chmod -R u+rwX,go+rX,go-w "$ram"
  find "$ram" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
  (cd "$ram" && find . | sort | cpio --quiet -o -H newc --reproducible -R 0:0) | zstd -q -19 -T1 -f -o "$out/initramfs"
}

# The licenses are read from where the packages were unpacked; the files must be finished.
write_sbom() {
  node "$here/sbom.mjs" "$lock" "$arch" "$out" "$work/npm" "$work/root" "$work/kernel" "$work/busybox" >"$out/sbom.cdx.json" 2>"$work/sbom.log" ||
    fail build_failed "the bill of materials could not be written: $(tail -n1 "$work/sbom.log")"
}
