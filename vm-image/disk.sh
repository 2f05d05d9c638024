#!/usr/bin/env bash
# Lays an image out as one bootable raw disk, without root rights or loop devices: GPT with a FAT partition that boots
# by BIOS (syslinux) and by UEFI (one unsigned unified kernel image), caisson-root and caisson-agent. x86-64 only.
# usage: disk.sh --image FOLDER --agent AGENT.EROFS --out DISK.RAW
# A failure is one line `caisson-image: ERROR CODE: TEXT` on stderr.
set -euo pipefail
export LC_ALL=C SOURCE_DATE_EPOCH=1704067200 MTOOLS_SKIP_CHECK=1 PATH="$PATH:/usr/sbin:/sbin"

fail() { printf 'caisson-image: ERROR %s: %s\n' "$1" "$2" >&2; exit 1; }

image='' agent='' out=''
while [ $# -gt 0 ]; do
  case $1 in
    --image) image=$2; shift ;;
    --agent) agent=$2; shift ;;
    --out) out=$2; shift ;;
    *) fail usage "unknown option $1; see the head of disk.sh" ;;
  esac
  shift
done
if [ ! -f "$image/root.erofs" ] || [ ! -f "$agent" ] || [ -z "$out" ]; then
  fail usage 'give --image FOLDER --agent FILE --out FILE'
fi

mbr=/usr/lib/syslinux/mbr/gptmbr.bin
stub=/usr/lib/systemd/boot/efi/linuxx64.efi.stub
missing=()
for pair in sfdisk:fdisk mkfs.vfat:dosfstools mcopy:mtools syslinux:syslinux objcopy:binutils; do
  command -v "${pair%%:*}" >/dev/null || missing+=("${pair#*:}")
done
[ -f "$mbr" ] || missing+=(syslinux-common)
[ -f "$stub" ] || missing+=(systemd-boot-efi)
[ ${#missing[@]} -eq 0 ] ||
  fail tools_missing "packages are missing: ${missing[*]}; install them: apt-get install --no-install-recommends ${missing[*]}"

work=$(mktemp -d "$out.work-XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM HUP

# tsc=reliable is for emulation alone (host/vm/vm-command.ts): under KVM the kernel prefers kvm-clock.
cmdline='console=ttyS0 quiet loglevel=4 panic=-1 no_timer_check tsc=reliable'
sector=512 boot_sectors=131072 first=2048
# sectors FILE: its length rounded up to whole MiB
# shellcheck disable=SC2017
sectors() { echo $((($(stat -Lc %s "$1") + 1048575) / 1048576 * 2048)); }

# objcopy writes the hour into a PE file: TimeDateStamp at 8 and CheckSum at 88 after the signature, which lies where
# the u32 at 0x3c says (Microsoft PE format). Firmware needs neither.
clear_build_time() {
  local header field
  header=$(od -An -tu4 -j60 -N4 "$1" | tr -d ' ')
  for field in 8 88; do
    dd if=/dev/zero of="$1" bs=1 count=4 seek=$((header + field)) conv=notrunc status=none
  done
}

make_boot_partition() {
  local boot=$work/boot.img
  printf 'ID=caisson\nNAME=Caisson\nPRETTY_NAME=Caisson\n' >"$work/os-release"
  printf '%s' "$cmdline" >"$work/cmdline"
  objcopy --add-section .osrel="$work/os-release" --change-section-vma .osrel=0x20000 \
    --add-section .cmdline="$work/cmdline" --change-section-vma .cmdline=0x30000 \
    --add-section .linux="$image/vmlinuz" --change-section-vma .linux=0x2000000 \
    --add-section .initrd="$image/initramfs" --change-section-vma .initrd=0x4000000 "$stub" "$work/BOOTX64.EFI"
  clear_build_time "$work/BOOTX64.EFI"
  printf 'DEFAULT caisson\nPROMPT 0\nTIMEOUT 0\nLABEL caisson\n  LINUX /vmlinuz\n  INITRD /initramfs\n  APPEND %s\n' "$cmdline" \
    >"$work/syslinux.cfg"
  cp "$image/vmlinuz" "$image/initramfs" "$work/"
  touch -d "@$SOURCE_DATE_EPOCH" "$work"/{BOOTX64.EFI,syslinux.cfg,vmlinuz,initramfs}
  truncate -s $((boot_sectors * sector)) "$boot"
  mkfs.vfat -F 32 -i ca155007 -n CAISSON --invariant "$boot" >/dev/null
  mmd -i "$boot" ::/EFI ::/EFI/BOOT
  mcopy -m -i "$boot" "$work/BOOTX64.EFI" ::/EFI/BOOT/
  mcopy -m -i "$boot" "$work/vmlinuz" "$work/initramfs" "$work/syslinux.cfg" ::/
  syslinux --install "$boot"
}

write_disk() {
  local disk=$work/disk.raw root_start root_sectors agent_start agent_sectors
  root_start=$((first + boot_sectors)) root_sectors=$(sectors "$image/root.erofs")
  agent_start=$((root_start + root_sectors)) agent_sectors=$(sectors "$agent")
  truncate -s $(((agent_start + agent_sectors + 2048) * sector)) "$disk"
  sfdisk --quiet "$disk" <<-END
	label: gpt
	label-id: C5A15507-0000-4000-8000-000000000010
	start=$first, size=$boot_sectors, type=C12A7328-F81F-11D2-BA4B-00A0C93EC93B, name=caisson-boot, uuid=C5A15507-0000-4000-8000-000000000011, attrs=LegacyBIOSBootable
	start=$root_start, size=$root_sectors, type=0FC63DAF-8483-4772-8E79-3D69D8477DE4, name=caisson-root, uuid=C5A15507-0000-4000-8000-000000000012
	start=$agent_start, size=$agent_sectors, type=0FC63DAF-8483-4772-8E79-3D69D8477DE4, name=caisson-agent, uuid=C5A15507-0000-4000-8000-000000000013
	END
  dd if="$mbr" of="$disk" bs=440 count=1 conv=notrunc status=none
  dd if="$work/boot.img" of="$disk" bs=1M seek=$((first / 2048)) conv=notrunc,sparse status=none
  dd if="$image/root.erofs" of="$disk" bs=1M seek=$((root_start / 2048)) conv=notrunc,sparse status=none
  dd if="$agent" of="$disk" bs=1M seek=$((agent_start / 2048)) conv=notrunc,sparse status=none
  mv "$disk" "$out"
}

make_boot_partition || fail build_failed 'the boot partition could not be made'
write_disk || fail build_failed 'the disk could not be written'
