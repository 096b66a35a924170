#!/usr/bin/env bash
# Builds everything that a release has: cross/release.sh
#
# Empties dist, and writes into dist/release: each static binary as nodelet-TARGET, its symbols,
# each Debian package, and SHA256SUMS.
set -euo pipefail
cd "$(dirname "$0")/.."

release=dist/release
rm -rf dist
mkdir -p "$release"
cross/build.sh
cross/deb.sh arm64 armhf armv6 riscv64 amd64
for folder in dist/*-linux-*; do
  target=$(basename "$folder")
  install -m 755 "$folder/nodelet" "$release/nodelet-$target"
  install -m 644 "$folder/nodelet-$target.debug" "$release"
done
install -m 644 dist/*.deb "$release"
(cd "$release" && sha256sum -- nodelet* >SHA256SUMS)
ls -l "$release"
