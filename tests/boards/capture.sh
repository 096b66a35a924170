#!/bin/sh
# Copies what nodelet reads on this machine into a tree: capture.sh FOLDER
#
# Runs inside the machine, as root, with only a POSIX shell and busybox. Copies at most
# 64 KiB of each file. Links are kept, as relative ones. Values that identify a machine
# are replaced by made-up values of the same form: machine-id, boot id, the UUIDs of the
# machine, host name, builder of the kernel, and the mount points that only this machine has.
# Addresses stay: read proc/net and etc/hosts before you publish a tree of a machine with
# public addresses.
set -eu
out=${1:?usage: capture.sh FOLDER}
mkdir -p "$out"

# take FILTER PATH: the path is walked, so that links on the way are kept too.
take() {
  filter=$1 at='' rest=$2
  while [ -n "$rest" ]; do
    name=${rest%%/*}
    case $rest in */*) rest=${rest#*/} ;; *) rest= ;; esac
    here=${at:+$at/}$name
    # proc/self links to the number of the process that looks: a folder here.
    if [ -L "/$here" ] && [ "$here" != proc/self ]; then
      target=$(readlink "/$here")
      case $target in
        # The way up from the folder of the link to the root.
        /*) link=$(printf '%s' "$at" | sed 's|[^/][^/]*|..|g')$target
            real=${target#/} ;;
        *) link=$target
           real=$(cd "/$at" && cd "$(dirname "$target")" && pwd -P)/$(basename "$target")
           case $at in proc) real=proc/$target ;; *) real=${real#/} ;; esac ;;
      esac
      mkdir -p "$out/$at"
      [ -L "$out/$here" ] || ln -s "$link" "$out/$here"
      take "$filter" "$real${rest:+/$rest}"
      return
    fi
    at=$here
  done
  if [ -d "/$at" ]; then
    mkdir -p "$out/$at"
  elif [ -r "/$at" ]; then
    mkdir -p "$out/${at%/*}"
    # Some files can be opened and not read, as those of pressure without psi=1.
    if head -c 65536 "/$at" >"$out/$at.raw" 2>/dev/null; then
      $filter <"$out/$at.raw" >"$out/$at"
    fi
    rm -f "$out/$at.raw"
  fi
}

same_digit_a() { sed 's/[0-9a-f]/a/g; s/[A-F]/A/g'; }
same_digit_b() { sed 's/[0-9a-f]/b/g; s/[A-F]/B/g'; }
same_digit_c() { sed 's/[0-9a-f]/c/g; s/[A-F]/C/g'; }
no_name() { echo board; }
no_builder() { sed 's/([^()@ ]*@[^()@ ]*)/(builder@host)/'; }
no_own_hosts() {
  awk '!/^#/ { for (i = 2; i <= NF; i++) if ($i !~ /^(localhost|ip6-)/) $i = "board" } { print }'
}
# A mount point that no system has by itself gets a name without meaning.
no_own_mounts() {
  awk '{
    point = $5
    if (point !~ "^/(proc|sys|dev|run|tmp|boot|var|usr|etc)?(/|$)") {
      $4 = "/"
      $5 = "/mnt/own" NR
      for (i = 6; $i != "-"; i++);
      $(i + 2) = "own"
    }
    print
  }'
}
no_own_mount_list() {
  awk '{ if ($2 !~ "^/(proc|sys|dev|run|tmp|boot|var|usr|etc)?(/|$)") { $1 = "own"; $2 = "/mnt/own" NR } print }'
}

cd /
for file in proc/meminfo proc/loadavg proc/cgroups \
  proc/sys/kernel/pid_max proc/sys/kernel/threads-max proc/sys/kernel/osrelease \
  proc/net/route proc/net/ipv6_route \
  proc/pressure/cpu proc/pressure/memory proc/pressure/io proc/pressure/irq \
  sys/kernel/mm/hugepages/*/nr_hugepages \
  sys/devices/system/cpu/online sys/devices/system/cpu/cpu[0-9]* \
  sys/devices/system/cpu/cpu[0-9]*/topology/core_id \
  sys/devices/system/cpu/cpu[0-9]*/topology/physical_package_id \
  sys/devices/system/node/node[0-9]* sys/devices/system/node/node[0-9]*/cpu[0-9]* \
  sys/fs/cgroup/cgroup.controllers sys/fs/cgroup/memory.stat \
  sys/fs/cgroup/memory/memory.usage_in_bytes sys/fs/cgroup/memory/memory.stat \
  etc/os-release usr/lib/os-release; do
  if [ -e "/$file" ]; then take cat "$file"; fi
done
for pair in same_digit_a:etc/machine-id same_digit_a:var/lib/dbus/machine-id \
  same_digit_b:proc/sys/kernel/random/boot_id same_digit_c:sys/class/dmi/id/product_uuid \
  same_digit_c:proc/device-tree/system-id same_digit_c:proc/device-tree/vm,uuid \
  no_name:proc/sys/kernel/hostname no_builder:proc/version no_own_hosts:etc/hosts \
  no_own_mounts:proc/self/mountinfo no_own_mount_list:proc/mounts; do
  if [ -e "/${pair#*:}" ]; then take "${pair%%:*}" "${pair#*:}"; fi
done
