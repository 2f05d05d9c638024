# One bootable qcow2 of the image, by Packer's QEMU builder: it boots the raw disk that disk.sh made from the recipe's
# own output, the guest checks itself and powers off, and Packer compresses. Run by: npm run image:disk -- --out FOLDER

variable "disk" {
  type        = string
  description = "The raw disk that disk.sh made."
}

variable "disk_sha256" {
  type        = string
  description = "Its digest."
}

variable "output" {
  type        = string
  description = "The folder to make; it must not exist."
}

variable "console" {
  type        = string
  description = "The file that gets the guest's console."
}

variable "accelerator" {
  type        = string
  default     = "tcg,thread=multi"
  description = "QEMU's -accel; the build boot takes seconds even without hardware help."
}

source "qemu" "caisson" {
  iso_url          = var.disk
  iso_checksum     = "sha256:${var.disk_sha256}"
  disk_image       = true
  skip_resize_disk = true
  format           = "qcow2"
  disk_interface   = "virtio"
  disk_compression = true
  output_directory = var.output
  vm_name          = "caisson.qcow2"
  machine_type     = "q35"
  accelerator      = "none"
  memory           = 512
  headless         = true
  disable_vnc      = true
  communicator     = "none"
  shutdown_timeout = "3m"
  qemuargs = [
    ["-accel", var.accelerator],
    ["-cpu", "max"],
    ["-display", "none"],
    # Packer wants a network card; this one reaches nothing.
    ["-netdev", "user,id=user.0,restrict=on"],
    # The guest's init sees this, says that it works, and powers off without writing.
    ["-smbios", "type=1,serial=caisson-build"],
    ["-serial", "file:${var.console}"],
  ]
}

build {
  sources = ["source.qemu.caisson"]
}
