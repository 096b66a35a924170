#!/bin/sh
# An amd64 Debian machine on which nodelet's package is installed, and the initramfs that
# dracut makes there as our module says: dracut.sh PACKAGE KUBECONFIG PAIR FOLDER writes vmlinuz,
# initramfs, root, an image of ext4, and qemu. The machine joined with a name that is not its host
# name, long ago: the certificate of KUBECONFIG has expired, PAIR is in use.
#
# The package is in /root for an upgrade, and a shell waits on the console.
#
# Needs root, apt, mmdebstrap and mke2fs, on amd64. The root is locked: a hook of the
# initramfs asks for a line on the console before it is mounted.
set -eu
package=$1 kubeconfig=$2 pair=$3 folder=$4
here=$(cd "$(dirname "$0")" && pwd)
arch=amd64
. "$here/debian.sh"
command -v mmdebstrap >/dev/null || { apt-get update -qq && apt-get install -y -qq --no-remove mmdebstrap; } >&2

# What is done in the new root, where /proc, /sys and /dev are mounted for it.
cat >"$folder/setup" <<'SETUP'
set -eu
dpkg --install /tmp/nodelet.deb
install -D -m 600 /tmp/kubeconfig /etc/credstore/nodelet.kubeconfig
echo 'NODELET_JOIN_FLAGS=--rotate-certificates --hostname-override=board' >/etc/default/nodelet-join
install -d -m 700 /var/lib/private /var/lib/private/nodelet /var/lib/private/nodelet/pki
install -m 600 /tmp/pair /var/lib/private/nodelet/pki/kubelet-client-2026-11-21-06-19-25.pem
ln -s kubelet-client-2026-11-21-06-19-25.pem /var/lib/private/nodelet/pki/kubelet-client-current.pem
ln -s private/nodelet /var/lib/nodelet
printf '[Match]\nName=e*\n[Network]\nDHCP=yes\n' >/etc/systemd/network/all.network
systemctl --quiet enable systemd-networkd
systemctl --quiet mask serial-getty@ttyS0
systemctl --quiet add-wants multi-user console.service
cp /tmp/nodelet.deb /root
echo machine >/etc/hostname
echo 'add_dracutmodules+=" nodelet network "' >/etc/dracut.conf.d/nodelet.conf
cat >/tmp/lock.sh <<'LOCK'
echo 'LOCKED ROOT: your passphrase' >/dev/console
read -r _ </dev/console
LOCK
chmod +x /tmp/lock.sh
dracut --quiet --force --include /tmp/lock.sh /usr/lib/dracut/hooks/pre-mount/10-lock.sh \
  /tmp/initramfs "$(basename /lib/modules/*)"
SETUP
root=$folder/tree
mmdebstrap --quiet --variant=essential --dpkgopt=path-exclude='/usr/share/*/man/*' \
  --include="systemd-sysv,udev,dbus,procps,dracut,dracut-network,linux-image-cloud-$arch" \
  --customize-hook="cp '$package' \"\$1/tmp/nodelet.deb\"" \
  --customize-hook="cp '$kubeconfig' \"\$1/tmp/kubeconfig\"" \
  --customize-hook="cp '$pair' \"\$1/tmp/pair\"" \
  --customize-hook="cp '$here/console.service' \"\$1/etc/systemd/system/\"" \
  --customize-hook="chroot \"\$1\" sh -s <'$folder/setup'" \
  --customize-hook="mv \"\$1\"/boot/vmlinuz-* '$folder/vmlinuz'" \
  --customize-hook="mv \"\$1/tmp/initramfs\" '$folder/initramfs'" \
  --customize-hook="rm -r \"\$1\"/boot/* \"\$1\"/tmp/*" \
  "$(. /etc/os-release && echo "$VERSION_CODENAME")" "$root" >&2
mke2fs -q -t ext4 -d "$root" "$folder/root" 1g
rm -r "$root"
qemu qemu-system-x86_64 qemu-system-x86 "$folder/qemu"
