#!/usr/bin/env bash
# Static release binaries: cross/build.sh [TARGET...] writes dist/TARGET/nodelet.
#
# TARGET is aarch64-unknown-linux-musl (the default) or x86_64-unknown-linux-musl:
# the two whose std rustup has ready-made. ring needs a C compiler for the target;
# the linker is the rust-lld that comes with rustc (GNU ld pads the file by 54 KB).
set -euo pipefail
cd "$(dirname "$0")/.."

for target in "${@:-aarch64-unknown-linux-musl}"; do
  case $target in
    aarch64-unknown-linux-musl) cc=aarch64-linux-gnu-gcc package=gcc-aarch64-linux-gnu ;;
    x86_64-unknown-linux-musl) cc=gcc package=gcc ;;
    *) echo "cross/build.sh: $target: not a target of this script yet" >&2; exit 2 ;;
  esac
  if ! command -v "$cc" >/dev/null; then
    echo "cross/build.sh: $cc is missing; apt install $package" >&2
    exit 1
  fi
  rustup target add "$target"
  upper=$(tr 'a-z-' 'A-Z_' <<<"$target")
  env "CC_${target//-/_}=$cc" "CARGO_TARGET_${upper}_LINKER=rust-lld" \
    cargo build --release --locked --target "$target"
  install -D "target/$target/release/nodelet" "dist/$target/nodelet"
  (cd "dist/$target" && sha256sum nodelet >nodelet.sha256)
  ls -l "dist/$target/nodelet"
done
