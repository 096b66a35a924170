#!/usr/bin/env bash
# Installs and purges the Debian packages of dist/ in a temporary root, and compares the files
# before and after: tests/package.sh [ARCHITECTURE...], by default amd64. The binary of another
# architecture is installed, too, but not run.
set -euo pipefail
cd "$(dirname "$0")/.."

test $# -gt 0 || set -- amd64
command -v mmdebstrap >/dev/null || { apt-get update -qq && apt-get install -y -qq mmdebstrap; }
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
# With systemd, which enables and shows units; the suite of this machine.
mmdebstrap --quiet --variant=essential --include=systemd,man-db \
  --dpkgopt=path-include='/usr/share/man/*' "$(. /etc/os-release && echo "$VERSION_CODENAME")" "$root"

# Files, folders and links with their modes and owners. The lists of dpkg itself, its logs
# and what it caches are not the package's.
everything() {
  find "$root" -xdev \( -path "$root/proc" -o -path "$root/sys" -o -path "$root/dev" -o -path "$root/run" \
    -o -path "$root/var/log" -o -path "$root/var/cache" \) -prune \
    -o -printf '%P %M %U:%G %l\n' | grep -v '^var/lib/dpkg/' | sort
}
expect() { # WHAT, then a command that must succeed
  local what=$1
  shift
  if ! "$@" >"$root.log" 2>&1; then
    cat "$root.log" >&2
    echo "tests/package.sh: $architecture: $what: failed" >&2
    exit 1
  fi
  echo "$architecture: $what: ok"
}
inside() { chroot "$root" env DEBIAN_FRONTEND=noninteractive "$@"; }

# Installs the package while systemd seems to run, and looks for what the script asks of it, and for
# the line that asks for a join: a board with an identity gets none.
asks() { # WHAT [yes: with an identity]
  mkdir -p "$root/run/systemd/system"
  : >"$root/run/asked"
  inside dpkg --force-architecture --install /run/nodelet.deb | tee "$root/run/said"
  rmdir "$root/run/systemd/system"
  case $*:$(grep -c 'no Node yet' "$root/run/said" || true) in
    restart:0 | try-restart:1 | 'try-restart yes:0') ;;
    *) return 1 ;;
  esac
  grep -x -- "--system --no-block $1 nodelet.service" "$root/run/asked"
}
# What dpkg runs if the removal ends after prerm.
aborts() {
  mkdir -p "$root/run/systemd/system"
  : >"$root/run/asked"
  inside DPKG_MAINTSCRIPT_PACKAGE=nodelet DPKG_MAINTSCRIPT_NAME=postinst \
    /var/lib/dpkg/info/nodelet.postinst abort-remove
  rmdir "$root/run/systemd/system"
  grep -x -- '--system --no-block restart nodelet.service' "$root/run/asked"
}
removes() { # FOLDER
  inside dpkg --remove nodelet | tee "$root/run/said"
  test "$(grep -c 'a purge leaves it' "$root/run/said")" = 1 && grep -F "nodelet: $1 may" "$root/run/said"
}
is_disabled() { ! inside systemctl is-enabled "$1" && ! find "$root/etc/systemd" -name "$1" | grep .; }
# Offline, systemctl reads the links of units and starts nothing.
mkdir -p "$root/usr/local/bin"
cat >"$root/usr/local/bin/systemctl" <<'STUB'
#!/bin/sh
echo "$*" >>/run/asked
SYSTEMD_OFFLINE=1 exec /usr/bin/systemctl "$@"
STUB
chmod 755 "$root/usr/local/bin/systemctl"

for architecture; do
  package=$(echo dist/nodelet_*_"$architecture".deb)
  mkdir -p "$root/etc/credstore"
  before=$(everything)
  cp "$package" "$root/run/nodelet.deb"
  expect 'installs' inside dpkg --force-architecture --install /run/nodelet.deb
  expect 'files are as packed' inside dpkg --verify nodelet
  expect 'the unit is enabled' inside systemctl is-enabled nodelet.service
  expect 'the path unit is enabled' inside systemctl is-enabled nodelet.path
  expect 'the units are sound' inside systemd-analyze verify --man=no nodelet.service nodelet.path \
    nodelet-runtime.service nodelet-serve.socket nodelet-serve.service nodelet-logs.socket \
    nodelet-logs@1.service
  expect 'the port is not enabled' is_disabled nodelet-serve.socket
  expect 'the journal is not enabled' is_disabled nodelet-logs.socket
  if test "$architecture" = "$(dpkg --print-architecture)"; then
    expect 'the unit has its manual page' inside man --where 8 nodelet
    expect 'the binary runs' inside nodelet --version
    expect 'the binary looks at this root' inside nodelet inspect --root-dir=/
  fi
  # What a board leaves behind that has run.
  mkdir -p "$root/var/lib/private/nodelet" "$root/var/lib/private/nodelet-serve"
  touch "$root/var/lib/private/nodelet/kubelet-client-current.pem" "$root/etc/default/nodelet-join"
  touch "$root/var/lib/private/nodelet-serve/key.pem"
  touch "$root/etc/credstore/nodelet.kubeconfig.new" "$root/etc/default/nodelet-join.new"
  ln -s private/nodelet "$root/var/lib/nodelet"
  ln -s private/nodelet-serve "$root/var/lib/nodelet-serve"
  inside systemctl --quiet enable nodelet-serve.socket
  echo 'NODELET_JOIN_FLAGS=--root-dir=/var/lib/nodelet --cert-dir=/opt/keys' \
    >"$root/etc/default/nodelet-join"
  mkdir "$root/opt/keys"
  expect 'is removed, and names the folder that stays' removes /opt/keys
  rmdir "$root/opt/keys"
  expect 'keeps its state until it is purged' test -e "$root/var/lib/private/nodelet/kubelet-client-current.pem"
  expect 'is not started without an identity' asks try-restart
  expect 'the port stays enabled' inside systemctl is-enabled nodelet-serve.socket
  expect 'an enabled port is opened' grep -x -- '--quiet --system start nodelet-serve.socket' "$root/run/asked"
  # The last two: the bootstrap kubeconfig of a fleet was removed; an administrator's own file.
  echo 'NODELET_JOIN_FLAGS=--v=2 --kubeconfig=/opt/board/kubeconfig' >"$root/etc/default/nodelet-join"
  for identity in etc/credstore/nodelet.kubeconfig etc/credstore/nodelet.bootstrap-kubeconfig \
    opt/board/kubeconfig; do
    inside dpkg --remove nodelet >/dev/null
    install -D -m 600 /dev/null "$root/$identity"
    expect "is started with $identity" asks restart
    expect "is started with $identity after an aborted removal" aborts
    rm "$root/$identity"
  done
  rmdir "$root/opt/board"
  inside dpkg --remove nodelet >/dev/null
  expect 'is not started with flags that name a missing file' asks try-restart
  inside /usr/bin/systemctl --quiet disable nodelet.service
  touch "$root/etc/credstore/nodelet.kubeconfig"
  expect 'is not started if it is disabled' asks try-restart yes
  inside dpkg --remove nodelet >/dev/null
  expect 'is purged' inside dpkg --purge nodelet
  expect 'leaves nothing' diff <(echo "$before") <(everything)
done
rm -f "$root.log"
