#!/bin/sh
# An arm64 kernel, an initramfs in which systemd is PID 1, and a qemu to boot them, all of
# Debian's packages: image.sh prints the folder with vmlinuz, initramfs and qemu.
#
# Needs apt and dpkg-deb, cpio, gzip and xz; no root. There is no nodelet in it, no /var
# and nothing that makes it, no udev and no D-Bus; the machine-id is empty. Nothing brings
# the network up or sets the clock but /bin/late, which network.service runs where the
# kernel's command line has late=SECONDS SINCE 1970. A shell waits on the console.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
arch=arm64
. "$here/debian.sh"
unpack systemd 'linux-image-cloud-arm64 base-files' systemd busybox-static

image=$cache/image root=$cache/image/root
rm -rf "$image"
mkdir -p "$root"
# Without the kernel's files and what nobody reads there.
(cd "$cache/systemd" && find . \( -path ./boot -o -path './*lib/modules' -o -path ./var \
  -o -path './usr/lib/linux-image-*' -o -path ./usr/share -o -path './*lib/udev' \
  -o -path './*/gconv' -o -path './*lib/systemd/system-generators/*' \
  -o -path './*/getty.target.wants' -o -path './*lib/tmpfiles.d' \) -prune -o -print |
  cpio --quiet -p -d "$root")
# One /usr, where the packages do not have it already.
for folder in bin sbin lib; do
  if [ -L "$root/$folder" ]; then continue; fi
  if [ -d "$root/$folder" ]; then
    mkdir -p "$root/usr/$folder"
    cp -a "$root/$folder/." "$root/usr/$folder/"
    rm -r "${root:?}/$folder"
  fi
  ln -s "usr/$folder" "$root/$folder"
done
# Its other commands it finds in itself.
ln -s busybox "$root/usr/bin/sh"
(cd "$root" && mkdir -p proc sys dev run tmp root etc/systemd/system/multi-user.target.wants)
ln -s usr/lib/systemd/systemd "$root/init"
ln -sf /usr/lib/systemd/system/multi-user.target "$root/etc/systemd/system/default.target"
echo board >"$root/etc/hostname"
printf '127.0.0.1 localhost board\n' >"$root/etc/hosts"
printf 'root:x:0:0::/root:/bin/sh\n' >"$root/etc/passwd"
: >"$root/etc/machine-id"
modules "$cache/systemd" "$root/usr/lib/late" \
  virtio_ring virtio virtio_mmio failover net_failover virtio_net virtio_blk

cat >"$root/usr/bin/late" <<'LATE'
#!/bin/sh
# late network | late clock SECONDS | late, which takes the seconds from late=SECONDS
case ${1:-} in
  network)
    for module in /usr/lib/late/*.ko; do insmod "$module"; done
    ip link set lo up
    ip address add 10.0.2.15/24 dev eth0
    ip link set eth0 up
    ip route add default via 10.0.2.2 dev eth0 ;;
  clock) date -s "@$2" ;;
  '')
    late network
    late clock "$(sed 's/.*late=\([0-9]*\).*/\1/' /proc/cmdline)" ;;
esac
LATE
chmod +x "$root/usr/bin/late"
cat >"$root/etc/systemd/system/network.service" <<'UNIT'
[Unit]
ConditionKernelCommandLine=late
[Service]
Type=oneshot
ExecStart=/bin/late
UNIT
cp "$here/console.service" "$root/etc/systemd/system/"
for unit in network console; do
  ln -s "/etc/systemd/system/$unit.service" "$root/etc/systemd/system/multi-user.target.wants/"
done

cp "$(find "$cache/systemd/boot" -name 'vmlinuz-*' | head -n 1)" "$image/vmlinuz"
(cd "$root" && find . | cpio --quiet -o -H newc -R 0:0 | gzip -1) >"$image/initramfs"
rm -r "$root"
qemu qemu-system-aarch64 qemu-system-arm "$image/qemu"
echo "$image"
