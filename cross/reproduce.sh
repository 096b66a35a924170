#!/usr/bin/env bash
# Verifies reproducible builds: cross/reproduce.sh [TARGET...], after cross/build.sh of the same
# targets. Builds HEAD again in another folder, with an empty CARGO_HOME and an empty cache, and
# compares the checksums.
set -euo pipefail
cd "$(dirname "$0")/.."

elsewhere=$(mktemp -d)
trap 'rm -rf "$elsewhere"' EXIT
git clone --quiet . "$elsewhere/some where/else"
# HOME is unchanged, so rustup finds the same toolchain.
CARGO_HOME=$elsewhere/cargo XDG_CACHE_HOME=$elsewhere/cache \
  "$elsewhere/some where/else/cross/build.sh" "$@"
for sums in "$elsewhere/some where/else/dist"/*/SHA256SUMS; do
  target=$(basename "$(dirname "$sums")")
  (cd "dist/$target" && sed "s|  |  $target/|" "$sums" && sha256sum --check --strict "$sums")
done
