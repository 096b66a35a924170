#!/usr/bin/env bash
# Runs the tests that need no server for another target, under qemu-user:
# cross/test.sh TARGET [--no-run]. With --no-run they are only compiled.
#
# Fewer cases, because the emulator is slow. The skipped tests measure time, or are of the
# simulator, which runs on no board.
set -euo pipefail
cd "$(dirname "$0")/.."
# A folder of its own: cargo lets one build at a time into a folder. The double is compiled without
# optimization: only the simulator calls it.
export CARGO_TARGET_DIR=$PWD/target/emulated PROPTEST_CASES=32
exec cross/cargo.sh "$1" test --locked -Zbuild-std --lib --test boards "${@:2}" \
  --config profile.dev.package.apidouble.opt-level=0 \
  -- --skip a_text_of_the_maximum_size_is_parsed_quickly --skip sim::
