# Sourced by build.sh: makes the root file system in $work/root and packs it. No maintainer script of a package
# runs; configure_root makes what they would have made.
# shellcheck shell=bash disable=SC2154

unpack_root() {
  local role name file root=$work/root folder
  step unpack "$(grep -c '^root ' "$work/debs") packages"
  mkdir -p "$root"/usr/{bin,sbin,lib,lib64}
  for folder in bin sbin lib lib64; do ln -s "usr/$folder" "$root/$folder"; done
  while read -r role name file; do
    [ "$role" = root ] || continue
    dpkg-deb --fsys-tarfile "$file" |
      tar -x -C "$root" --keep-directory-symlink --no-same-owner --no-same-permissions --delay-directory-restore \
        --exclude='./usr/share/man/*' --exclude='./usr/share/info/*' --exclude='./usr/share/locale/*' ||
      fail build_failed "package $name could not be unpacked"
    write_status "$file" >>"$work/status"
  done <"$work/debs"
  mkdir -p "$root/var/lib/dpkg"
  mv "$work/status" "$root/var/lib/dpkg/status"
}

# What a scanner reads to know the packages in this file system.
write_status() {
  dpkg-deb -f "$1" Package Version Architecture Maintainer Source Section Priority Depends Description | sed '1a Status: install ok installed'
  echo
}

# Removes what no program in the guest reads. Licences (usr/share/doc/*/copyright) stay.
prune_root() {
  step prune 'documents, locales, unused programs'
  cd "$work/root" || return
  find usr/share/doc -not -name copyright -not -type d -delete
  find usr/share/doc -type d -empty -delete
  rm -rf usr/share/{man,info,locale,lintian,bug,bash-completion,zsh,fish,menu,i18n,gitweb,initramfs-tools,apport,gdb,pixmaps,applications,debianutils,common-licenses/*~} \
    usr/lib/{udev,systemd,init,tmpfiles.d,sysctl.d,initramfs-tools,valgrind} "usr/lib/$triplet"/{gconv,audit,e2initrd_helper,engines-3} \
    etc/{init.d,cron.*,default,systemd,apt,dpkg,logrotate.d,bash_completion.d,kernel,update-motd.d,motd,issue*,skel,rc*.d,alternatives} var/{cache,log,lib/systemd,backups} lib/systemd
  cd usr/lib/git-core || return
  rm -rf git-daemon git-http-backend git-http-push git-imap-send git-shell git-add--interactive git-archimport git-cvs* git-instaweb \
    git-send-email git-svn git-request-pull mergetools scalar
  # the program itself lies there a second time
  if cmp -s git ../../bin/git; then ln -sf ../../bin/git git; fi
  cd "$work/root/usr/lib/python3.11" || return
  rm -rf idlelib tkinter turtledemo turtle.py test ensurepip lib2to3 pydoc_data unittest/test ctypes/test distutils/tests sqlite3/test \
    lib-dynload/_test* lib-dynload/_ctypes_test* lib-dynload/_xxtest* lib-dynload/xx* lib-dynload/_tkinter*
  cd "$work/root/usr/bin" || return
  rm -f scalar git-shell perf gdbm* ./*perl* pdb3* pydoc3* pygettext3* 2to3* scriptlive chfn chsh last lastb newgrp
  rm -f ../sbin/{agetty,fsck.cramfs,fsck.minix,mkfs.bfs,mkfs.cramfs,mkfs.minix,sulogin,swaplabel,swapoff,swapon,mkswap,wipefs,zramctl,hwclock}
  rm -f "$work"/root/{etc/rmt,usr/sbin/getty}
  cd "$here" || return
}

configure_root() {
  local root=$work/root
  step configure 'accounts, certificates, library cache'
  mkdir -p "$root"/{dev,proc,sys,run,tmp,mnt/workspace,opt/caisson,root,home/work,etc/ssl/certs,var/{tmp,cache,log,empty}}
  cat >"$root/etc/passwd" <<-'END'
	root:*:0:0:root:/root:/bin/bash
	work:*:1000:1000:work:/home/work:/bin/bash
	agent:*:1001:1001:agent:/run/caisson/agent:/usr/sbin/nologin
	nobody:*:65534:65534:nobody:/nonexistent:/usr/sbin/nologin
	END
  cat >"$root/etc/group" <<-'END'
	root:*:0:
	tty:*:5:
	work:*:1000:
	agent:*:1001:
	nogroup:*:65534:
	END
  echo caisson >"$root/etc/hostname"
  printf '127.0.0.1 localhost caisson\n::1 localhost\n' >"$root/etc/hosts"
  # There is no name server to ask: names of the outside are resolved by the host's gateway.
  : >"$root/etc/resolv.conf"
  printf 'passwd: files\ngroup: files\nshadow: files\nhosts: files\nservices: files\nprotocols: files\n' >"$root/etc/nsswitch.conf"
  # Output to a terminal is a log here; there is no pager to leave.
  printf '[core]\n\tpager = cat\n' >"$root/etc/gitconfig"
  printf 'export PS1="\\w \\$ "\n' >"$root/etc/profile"
  echo 'include /etc/ld.so.conf.d/*.conf' >"$root/etc/ld.so.conf"
  find "$root/usr/share/ca-certificates" -name '*.crt' | sort | while read -r certificate; do
    cat "$certificate"
    echo
  done | sed '/^$/d' >"$root/etc/ssl/certs/ca-certificates.crt"
  mkdir -p "$root/usr/lib/ssl"
  ln -sfn /etc/ssl/certs "$root/usr/lib/ssl/certs"
  ln -sfn /etc/ssl/certs/ca-certificates.crt "$root/usr/lib/ssl/cert.pem"
  for name in awk nawk; do ln -sf mawk "$root/usr/bin/$name"; done
  ln -sf which.debianutils "$root/usr/bin/which"
  ln -sf dash "$root/usr/bin/sh"
  ln -sf python3 "$root/usr/bin/python"
  ldconfig -r "$root" -X || fail build_failed 'ldconfig could not make the library cache'
  rm -rf "$root/var/cache/ldconfig"
}

install_node() {
  install -m 0755 "$node_file" "$work/root/usr/bin/node"
  local tool=strip
  if command -v "$triplet-strip" >/dev/null; then tool=$triplet-strip; fi
  # A strip of another architecture refuses; the image then is some megabytes larger.
  "$tool" --strip-all "$work/root/usr/bin/node" 2>/dev/null ||
    step node "left unstripped: this strip does not know $arch (apt-get install binutils-${triplet//_/-} brings one that does)"
}

install_guest() {
  local target=$work/root/usr/lib/caisson
  mkdir -p "$target"
  [ -f "$guest/init" ] || fail build_failed "the guest's init is missing: $guest/init"
  cp -R "$guest/." "$target/"
  find "$target" -name __pycache__ -type d -prune -exec rm -rf {} +
  install -m 0755 "$here/floor" "$target/floor"
  install -m 0755 "$here/echo" "$target/echo"
  chmod 0755 "$target/init"
}

# run_python ARGUMENT...: the image's own Python; for another architecture this machine's, of the same version.
run_python() {
  local root=$work/root python=(python3.11)
  [ "$arch" != "$(dpkg --print-architecture)" ] ||
    python=(env "PYTHONHOME=$root/usr" "$root/usr/lib64/$loader" --library-path "$root/usr/lib/$triplet" "$root/usr/bin/python3.11")
  command -v "${python[0]}" >/dev/null ||
    fail tools_missing "python3.11, which runs for an image for $arch (apt-get install python3.11)"
  # -B: what this very run imports must not be written with the names of the work folder in it.
  "${python[@]}" -B -s -S "$@"
}

# pip as Debian packs it for others to carry: one archive, which Python imports as it is.
install_pip() {
  local root=$work/root wheel
  wheel=$(cd "$root" && echo usr/share/python-wheels/pip-*.whl)
  [ -f "$root/$wheel" ] || fail build_failed 'python3-pip-whl holds no wheel of pip'
  echo "/$wheel" >"$root/usr/lib/python3/dist-packages/pip.pth"
  printf '#!/bin/sh\nexec python3 -m pip "$@"\n' >"$root/usr/bin/pip"
  chmod 0755 "$root/usr/bin/pip"
  ln -sf pip "$root/usr/bin/pip3"
  # No package manager minds what pip does here; it goes to the home folder, as /usr is read-only.
  rm -f "$root/usr/lib/python3.11/EXTERNALLY-MANAGED"
}

# Byte code is made at build: the guest would compile at every start otherwise. It is the same everywhere.
compile_python() {
  local root=$work/root
  step python 'byte code'
  run_python -m compileall -q --invalidation-mode unchecked-hash \
    -s "$root" -p / "$root/usr/lib/python3.11" "$root/usr/lib/caisson" >"$work/python.log" 2>&1 ||
    fail build_failed "byte code could not be made: $(tail -n 2 "$work/python.log" | tr '\n' ' ')"
}

pack_root() {
  step pack 'root.erofs'
  # No set-user-id program, and no mode that depends on who built.
  chmod -R u+rwX,go+rX,go-w,u-s,g-s "$work/root"
  chmod 1777 "$work/root/tmp" "$work/root/var/tmp"
  mkfs.erofs --quiet -T"$SOURCE_DATE_EPOCH" -U c5a15507-0000-4000-8000-000000000001 -x-1 --all-root -zlz4hc,12 -C262144 \
    "$out/root.erofs" "$work/root" >"$work/erofs.log" 2>&1 || fail build_failed "mkfs.erofs: $(tail -n 2 "$work/erofs.log" | tr '\n' ' ')"
}
