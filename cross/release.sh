#!/usr/bin/env bash
# Builds everything that a release has: cross/release.sh [TARGET...]     all five without a TARGET
#
# Empties dist, and writes into dist/release: each static binary as nodelet-TARGET, its symbols
# (.debug) and its SBOM (.cdx.json), each Debian package, the licence texts, and SHA256SUMS.
set -euo pipefail
cd "$(dirname "$0")/.."

declare -A architectures=(
  [aarch64-unknown-linux-musl]=arm64
  [armv7-unknown-linux-musleabihf]=armhf
  [arm-unknown-linux-musleabihf]=armv6
  [riscv64gc-unknown-linux-musl]=riscv64
  [x86_64-unknown-linux-musl]=amd64
)
test $# -gt 0 || set -- "${!architectures[@]}"
release=dist/release
rm -rf dist
mkdir -p "$release"
for target; do cross/deb.sh "${architectures[$target]}"; done
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
for target; do
  install -m 755 "dist/$target/nodelet" "$release/nodelet-$target"
  install -m 644 "dist/$target/nodelet-$target.debug" "$release"
  cross/third-party.py sbom "$target" >"$release/nodelet-$target.cdx.json"
done
install -m 644 dist/*.deb LICENSE "$release"
cross/third-party.py licenses "$@" >"$release/THIRD-PARTY-LICENSES"
(cd "$release" && sha256sum -- * >SHA256SUMS)
ls -l "$release"
