#!/usr/bin/env bash
# Builds everything that a release has: cross/release.sh
#
# Writes into dist/release: each static binary as nodelet-TARGET, its symbols, each Debian package,
# and SHA256SUMS.
set -euo pipefail
cd "$(dirname "$0")/.."

targets=(
  aarch64-unknown-linux-musl
  armv7-unknown-linux-musleabihf
  arm-unknown-linux-musleabihf
  riscv64gc-unknown-linux-musl
  x86_64-unknown-linux-musl
)
release=dist/release
rm -rf "$release" dist/*.deb
mkdir -p "$release"
cross/build.sh "${targets[@]}"
cross/deb.sh arm64 armhf armv6 riscv64 amd64
for target in "${targets[@]}"; do
  install -m 755 "dist/$target/nodelet" "$release/nodelet-$target"
  install -m 644 "dist/$target/nodelet.debug" "$release/nodelet-$target.debug"
done
install -m 644 dist/*.deb "$release"
(cd "$release" && sha256sum -- nodelet* >SHA256SUMS)
ls -l "$release"
