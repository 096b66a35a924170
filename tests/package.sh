#!/usr/bin/env bash
# Installs and purges the Debian packages in a throw-away root, and compares what is there
# before and after: tests/package.sh [ARCHITECTURE...] of dist/, amd64 without a name. A
# package for another architecture is installed all the same; its binary is not run then.
set -euo pipefail
cd "$(dirname "$0")/.."

test $# -gt 0 || set -- amd64
command -v mmdebstrap >/dev/null || { apt-get update -qq && apt-get install -y -qq mmdebstrap; }
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
# With systemd, so that units can be enabled and looked at; the suite of this machine.
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

for architecture; do
  package=$(echo dist/nodelet_*_"$architecture".deb)
  before=$(everything)
  cp "$package" "$root/tmp/nodelet.deb"
  expect 'installs' inside dpkg --force-architecture --install /tmp/nodelet.deb
  rm "$root/tmp/nodelet.deb"
  expect 'files are as packed' inside dpkg --verify nodelet
  expect 'the unit is enabled' inside systemctl is-enabled nodelet.service
  expect 'the path unit is enabled' inside systemctl is-enabled nodelet.path
  expect 'the units are sound' inside systemd-analyze verify --man=no nodelet.service nodelet.path \
    nodelet-runtime.timer
  expect 'the timer is not enabled' test \
    "$(inside systemctl is-enabled nodelet-runtime.timer)" = disabled
  expect 'the timer can be enabled' inside systemctl enable nodelet-runtime.timer
  if test "$architecture" = "$(dpkg --print-architecture)"; then
    expect 'the unit has its manual page' inside man --where 8 nodelet
    expect 'the binary runs' inside nodelet --version
    expect 'the binary looks at this root' inside nodelet inspect --root-dir=/
  fi
  # What a board leaves behind that has run.
  mkdir -p "$root/var/lib/private/nodelet"
  touch "$root/var/lib/private/nodelet/kubelet-client-current.pem" "$root/etc/default/nodelet-join"
  ln -s private/nodelet "$root/var/lib/nodelet"
  expect 'is removed' inside dpkg --remove nodelet
  expect 'keeps its state until it is purged' test -e "$root/var/lib/private/nodelet/kubelet-client-current.pem"
  expect 'is purged' inside dpkg --purge nodelet
  expect 'leaves nothing' diff <(echo "$before") <(everything)
done
rm -f "$root.log"
