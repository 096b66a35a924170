#!/bin/sh
# A board with nodelet's package and nothing else: disk.sh IMAGE PACKAGE FOLDER writes disk, an ext4
# root of what image.sh made and the package, and initramfs, whose /switch mounts that root.
#
# Needs dpkg-deb, cpio, gzip and mkfs.ext4; no root. The units are enabled as by the postinst script,
# which tests/package.sh runs.
set -eu
image=$1 package=$2 folder=$3
tree=$folder/tree
mkdir "$tree"
(cd "$tree" && gzip -dc "$image/initramfs" | cpio --quiet -i -d)
mkdir "$tree/mnt" "$tree/var"
cp "$image/initramfs" "$folder/initramfs"
truncate -s %4 "$folder/initramfs"
# insmod is a command of busybox, which runs itself as /proc/self/exe.
cat >"$tree/switch" <<'SWITCH'
#!/bin/sh
mount -t proc proc /proc
mount -t devtmpfs dev /dev
for module in /usr/lib/late/*.ko; do insmod "$module"; done
mount -t ext4 /dev/vda /mnt
exec busybox switch_root /mnt /init
SWITCH
chmod +x "$tree/switch"
(cd "$tree" && printf '%s\n' mnt switch | cpio --quiet -o -H newc -R 0:0 >>"$folder/initramfs")
rm "$tree/switch"

dpkg-deb --extract "$package" "$tree"
enable() { # UNIT TARGET
  mkdir -p "$tree/etc/systemd/system/$2.target.wants"
  ln -s "/usr/lib/systemd/system/$1" "$tree/etc/systemd/system/$2.target.wants/"
}
enable nodelet.service multi-user
enable nodelet.path paths
mkfs.ext4 -q -d "$tree" "$folder/disk" 128M
rm -r "$tree"
