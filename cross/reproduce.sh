#!/usr/bin/env bash
# Verifies reproducible builds: cross/reproduce.sh [TARGET...], after cross/release.sh. Makes the
# release of HEAD again in another folder, with an empty CARGO_HOME and an empty cache, and compares
# the checksums of all its files.
set -euo pipefail
cd "$(dirname "$0")/.."

elsewhere=$(mktemp -d)
trap 'rm -rf "$elsewhere"' EXIT
git clone --quiet . "$elsewhere/some where/else"
# HOME is unchanged, so rustup finds the same toolchain.
CARGO_HOME=$elsewhere/cargo XDG_CACHE_HOME=$elsewhere/cache \
  "$elsewhere/some where/else/cross/release.sh" "$@"
cd dist/release
sha256sum --check --strict "$elsewhere/some where/else/dist/release/SHA256SUMS"
