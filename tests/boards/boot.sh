#!/bin/sh
# Boots a Debian kernel under qemu, captures a tree inside: boot.sh arm64|armhf FOLDER
#
# Needs cpio, xz and apt whose sources have packages of the architecture: see
# ../boot/debian.sh. The tree comes over the serial console.
set -eu
arch=${1:?usage: boot.sh arm64|armhf FOLDER} out=${2:?usage: boot.sh arm64|armhf FOLDER}
here=$(cd "$(dirname "$0")" && pwd)
case $arch in
  arm64) kernel=linux-image-cloud-arm64 command=qemu-system-aarch64 cpu=cortex-a53 ;;
  armhf) kernel=linux-image-armmp command=qemu-system-arm cpu=cortex-a15 ;;
  *) echo "boot.sh: $arch: arm64 or armhf" >&2; exit 2 ;;
esac
mkdir -p "$out"
. "$here/../boot/debian.sh"
unpack root "$kernel base-files" busybox-static
qemu "$command" qemu-system-arm "$cache/start"

initramfs=$cache/initramfs
rm -rf "$initramfs"
mkdir -p "$initramfs/bin" "$initramfs/etc" "$initramfs/usr/lib" \
  "$initramfs/proc" "$initramfs/sys" "$initramfs/dev" "$initramfs/tmp"
cp "$cache"/root/*bin/busybox "$initramfs/bin/" 2>/dev/null ||
  cp "$cache"/root/usr/bin/busybox "$initramfs/bin/"
ln -s busybox "$initramfs/bin/sh"
cp "$cache/root/usr/lib/os-release" "$initramfs/usr/lib/"
ln -s ../usr/lib/os-release "$initramfs/etc/os-release"
cp "$here/capture.sh" "$initramfs/"
modules "$cache/root" "$initramfs/modules" \
  virtio_ring virtio virtio_mmio failover net_failover virtio_net
cat >"$initramfs/init" <<'INIT'
#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev 2>/dev/null
mount -t tmpfs tmpfs /tmp
mount -t cgroup2 cgroup2 /sys/fs/cgroup
for module in /modules/*.ko; do insmod "$module"; done
hostname guest
printf '127.0.0.1 localhost guest\n' >/etc/hosts
# As systemd does at the first boot.
tr -d - </proc/sys/kernel/random/uuid >/etc/machine-id
ip link set lo up
ip address add 10.0.2.15/24 dev eth0
ip link set eth0 up
ip route add default via 10.0.2.2 dev eth0
# So that not all counts are zero, where the kernel has huge pages at all.
for size in /sys/kernel/mm/hugepages/hugepages-2048kB; do
  if [ -d "$size" ]; then echo 3 >"$size/nr_hugepages"; fi
done
# The router of the virtual network speaks soon.
sleep 3
sh /capture.sh /tmp/tree
echo; echo BEGIN OF TREE
tar -c -C /tmp/tree . | gzip -9 | base64
echo END OF TREE
poweroff -f
INIT
chmod +x "$initramfs/init"
(cd "$initramfs" && find . | cpio --quiet -o -H newc | gzip -1) >"$cache/initramfs.gz"

vmlinuz=$(find "$cache/root/boot" -name 'vmlinuz-*' | head -n 1)
started=$(date +%s)
timeout 120 "$cache/start" -cpu "$cpu" -M virt -smp 2 -m 256 -kernel "$vmlinuz" -initrd "$cache/initramfs.gz" \
  -append 'console=ttyAMA0 quiet psi=1 panic=-1' -nodefaults -display none -serial stdio -no-reboot \
  -netdev user,id=net -device virtio-net-device,netdev=net </dev/null >"$cache/console"
echo "boot.sh: $arch: $(($(date +%s) - started)) s" >&2
tr -d '\r' <"$cache/console" | sed -n '/^BEGIN OF TREE/,/^END OF TREE/p' | sed '1d;$d' |
  base64 -d | tar -xz -C "$out"
