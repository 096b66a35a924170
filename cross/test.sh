#!/usr/bin/env bash
# Runs the tests that need no server for another target, under qemu-user: cross/test.sh TARGET
#
# Some optimization and fewer cases, because the emulator is slow: four of fifty machines
# (identity/tests/machine), forty of 2,000 lives (join/tests/life). The skipped test measures time.
set -euo pipefail
cd "$(dirname "$0")/.."
export CARGO_PROFILE_DEV_OPT_LEVEL=1 CARGO_PROFILE_DEV_DEBUG=none PROPTEST_CASES=32
export MACHINE_SEED=1..5 LIFE_SEED=1..41
exec cross/cargo.sh "$1" test --locked -Zbuild-std --lib --test boards \
  -- --skip a_text_of_the_maximum_size_is_parsed_quickly
