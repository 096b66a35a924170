#!/bin/sh
# Packs nodelet for an initramfs:
#
#   initramfs.sh [-d DEFAULT] [-j DIR] BINARY [CREDENTIAL...] >CPIO
#
# The archive (newc, not compressed) contains the binary, the unit (enabled), each CREDENTIAL (a
# file nodelet.NAME) as /etc/credstore/nodelet.NAME with mode 0600, and DEFAULT, if given, as
# /etc/default/nodelet. DIR is the folder of `nodelet join --root DIR`, or / on a board that joined:
# the archive then has its credentials, its flags, the drop-ins of the unit and its certificate in
# use, from the folder that --root-dir or --cert-dir of these flags names, and the files that
# --config and --config-dir name. A kubeconfig that they name is not packed. DEFAULT replaces /etc/default/nodelet of DIR. All files belong to root:
# systemd gives /var/lib/nodelet to the user of the unit, and a certificate elsewhere needs a unit
# with User=root. All have the date $SOURCE_DATE_EPOCH, or 1970: the same input gives the same
# bytes. The kernel unpacks several archives in sequence; this one must begin at a multiple of four
# bytes:
#
#   cp initramfs.img board.img
#   truncate -s %4 board.img
#   cat nodelet.cpio >>board.img
#
# Needs GNU cpio (2.12 or newer) and no root.
set -eu
umask 022
here=$(cd "$(dirname "$0")" && pwd)
usage='usage: initramfs.sh [-d DEFAULT] [-j DIR] BINARY [CREDENTIAL...] >CPIO'
default=
joined=
while :; do
  case ${1:-} in
    -d) default=${2:?$usage} ;;
    -j) joined=${2:?$usage} ;;
    *) break ;;
  esac
  shift 2
done
binary=${1:?$usage}
shift
if [ -t 1 ]; then
  echo "initramfs.sh: an archive is no text for a terminal; $usage" >&2
  exit 2
fi

# dash runs the trap of EXIT after `exit` only, not when a signal ends it.
tree=
trap 'rm -rf "$tree"' EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM
tree=$(mktemp -d)
chmod 755 "$tree"
install -D -m 755 "$binary" "$tree/usr/bin/nodelet"
install -D -m 644 "$here/nodelet.service" "$tree/usr/lib/systemd/system/nodelet.service"
# multi-user: the initramfs is the whole system. initrd: it switches to another root.
for target in multi-user initrd; do
  wants=$tree/etc/systemd/system/$target.target.wants
  mkdir -p "$wants"
  ln -s /usr/lib/systemd/system/nodelet.service "$wants/nodelet.service"
done
if [ -n "$default" ]; then
  install -D -m 644 "$default" "$tree/etc/default/nodelet"
fi

# below PATH: where PATH of DIR leads. An absolute link of an image is one of the image, and not of
# the machine that packs it.
below() {
  at=${joined%/} rest=$1 links=0
  while [ -n "$rest" ]; do
    name=${rest%%/*}
    case $rest in
      */*) rest=${rest#*/} ;;
      *) rest= ;;
    esac
    case $name in
      '' | .) ;;
      ..) [ "$at" = "${joined%/}" ] || at=${at%/*} ;;
      *)
        if target=$(readlink "$at/$name"); then
          links=$((links + 1))
          if [ "$links" -gt 40 ]; then
            echo "initramfs.sh: $joined/$1: too many links" >&2
            exit 2
          fi
          case $target in
            /*) at=${joined%/} ;;
          esac
          rest=$target/$rest
        else
          at=$at/$name
        fi
        ;;
    esac
  done
  printf '%s\n' "$at"
}

# flag NAME: its value in the packed flags. The last one wins, as in the unit.
flag() {
  cat "$tree/etc/default/nodelet-join" "$tree/etc/default/nodelet" 2>/dev/null |
    sed '/^[[:space:]]*[#;]/d' | tr -s "\"'\\\\= \t" '\n' |
    sed -n "/^--$1\$/{n;/^\//p;}" | tail -n 1
}

credential() {
  mkdir -p "$tree/etc/credstore"
  chmod 700 "$tree/etc/credstore"
  install -m 600 "$2" "$tree/etc/credstore/$1"
}

if [ -n "$joined" ]; then
  install -D -m 644 "$(below etc/default/nodelet-join)" "$tree/etc/default/nodelet-join"
  own=$(below etc/default/nodelet)
  if [ -z "$default" ] && [ -e "$own" ]; then
    install -D -m 644 "$own" "$tree/etc/default/nodelet"
  fi
  drop_ins=etc/systemd/system/nodelet.service.d
  for file in "$(below $drop_ins)"/*.conf; do
    if [ -e "$file" ]; then
      install -D -m 644 "$file" "$tree/$drop_ins/$(basename "$file")"
    fi
  done
  for file in "$(below etc/credstore)"/nodelet.*; do
    name=$(basename "$file")
    # An interrupted join leaves a key, perhaps of another cluster.
    case $name in *.new) continue ;; esac
    credential "$name" "$(below "etc/credstore/$name")"
  done
  # The agent wants a link to the pair, in the folder that the packed flags name.
  state=$(flag 'root[-_]dir') pki=$(flag 'cert[-_]dir') link=kubelet-client-current.pem
  state=${state:-/var/lib/nodelet} state=${state#/}
  pki=${pki:-$state/pki} pki=${pki#/}
  if pair=$(readlink "$(below "$pki")/$link"); then
    pair=$(basename "$pair")
    mkdir -p -m 700 "$tree/$state" "$tree/$pki"
    install -m 600 "$(below "$pki/$pair")" "$tree/$pki/$pair"
    ln -s "$pair" "$tree/$pki/$link"
  fi
  # The agent does not start without the file that --config names.
  {
    flag config
    folder=$(flag 'config[-_]dir')
    from=$(below "$folder")
    if [ -n "$folder" ] && [ -d "$from" ]; then
      (cd "$from" && find . -name '*.conf') | while read -r file; do
        echo "$folder/$file"
      done
    fi
  } | while read -r file; do
    from=$(below "$file")
    if [ -f "$from" ]; then
      install -D -m 644 "$from" "$tree/$file"
    fi
  done
fi
for credential in "$@"; do
  name=$(basename "$credential")
  case $name in
    nodelet.?*) ;;
    *) echo "initramfs.sh: $credential: the name of a credential begins with nodelet." >&2
       exit 2 ;;
  esac
  credential "$name" "$credential"
done

find "$tree" -exec touch -h -d "@${SOURCE_DATE_EPOCH:-0}" {} +
(cd "$tree" && find . -mindepth 1 | LC_ALL=C sort |
  cpio --quiet --create --format=newc --owner=+0:+0 --reproducible)
