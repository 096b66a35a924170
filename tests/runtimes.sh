#!/bin/sh
# The tests with real container runtimes: containerd, Podman and Docker, as Debian packages them.
# Unpacks the packages into a temporary folder and installs none of them. Needs root on Debian or
# Ubuntu, and python3. Prints SKIPPED for a runtime that apt does not have.
set -eu
cd "$(dirname "$0")/.."
project=$PWD
for tool in apt-get dpkg python3; do
  if [ "$(id -u)" -ne 0 ] || ! command -v "$tool" >/dev/null; then
    echo "SKIPPED: real container runtimes need root, apt-get, dpkg and python3" >&2
    [ -z "${CI:-}" ]
    exit
  fi
done
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
chmod 755 "$folder"
cd "$folder"
# With what a package needs beside a minimal Debian.
for packages in 'containerd runc' docker.io \
  'podman conmon libgpg-error0 golang-github-containers-common'; do
  # shellcheck disable=SC2086
  apt-get download $packages >/dev/null 2>&1 || echo "SKIPPED: apt lacks some of $packages" >&2
done
# Libraries of Podman, whose names differ: those of Debian 13 or Ubuntu 24.04, and of Debian 12.
for names in 'libgpgme11t64 libgpgme11' 'libsubid5 libsubid4' 'libassuan9 libassuan0'; do
  for name in $names; do
    if apt-get download "$name" >/dev/null 2>&1; then break; fi
  done
done
for package in *.deb; do
  [ ! -f "$package" ] || dpkg -x "$package" .
done
python3 "$project/tests/support/images.py" 12 12.tar
python3 "$project/tests/support/images.py" 2000 2000.tar
cd "$project"
RUNTIMES=$folder cargo test --locked --test agent -- --ignored --nocapture real_runtimes
