#!/bin/sh
# Fuzzes the parsers of foreign bytes: run.sh [SECONDS] [TARGET...]
#
# Compiles all targets, and runs all of them, or the given ones, for 60 s each. Needs
# rustup's nightly toolchain, a C++ compiler and cargo-fuzz (cargo install cargo-fuzz);
# libFuzzer is part of the crate libfuzzer-sys. Starts from seeds/, from the files of
# tests/boards, and from those of ../shared/fixtures if that folder exists; they are copied
# to corpus/, which is never committed. libFuzzer writes a finding to artifacts/TARGET/; make
# a regression test of it in the parser's own file. No sanitizer: the crate has no unsafe
# code. A finding is a panic, an overflow, or memory without bound (-rss_limit_mb).
set -eu
cd "$(dirname "$0")"
seconds=${1:-60}
[ $# -eq 0 ] || shift
[ $# -ne 0 ] || set -- $(ls targets | sed 's/\.rs$//')

# seed TARGET FIND-ARGUMENTS: every such file of the trees, by its content's sum.
seed() {
  target=$1
  shift
  mkdir -p "corpus/$target"
  for folder in "seeds/$target" ../boards ../../../shared/fixtures; do
    [ -d "$folder" ] || continue
    case $folder in
      seeds/*) find "$folder" -type f ;;
      *) find "$folder" -type f \( "$@" \) ;;
    esac
  done | while read -r file; do
    cp "$file" "corpus/$target/$(sha1sum <"$file" | cut -c1-16)"
  done
}

# A target that does not compile fails before the first one runs.
cargo +nightly fuzz build --fuzz-dir . --target-dir ../../target/fuzz --sanitizer none

for target; do
  case $target in
    memory) seed "$target" -name meminfo ;;
    cpu_list) seed "$target" -path '*/cpu/*' ! -path '*/topology/*' ;;
    mounts) seed "$target" -name mounts -o -name mountinfo ;;
    cgroup) seed "$target" -path '*/cgroup*' ! -name '*.json' ! -name SOURCE.txt ;;
    serve) seed "$target" -path '*/net/dev' -o -name cpu.stat ;;
    pids) seed "$target" -name loadavg ;;
    routes_v4) seed "$target" -name route ;;
    routes_v6) seed "$target" -name ipv6_route ;;
    hosts) seed "$target" -name hosts ;;
    os_release) seed "$target" -name os-release -o -name version ;;
    pressure) seed "$target" -path '*/pressure/*' -o -name '*.pressure' ;;
    yaml) seed "$target" -name expected.json ;;
    *) seed "$target" -name no-such-file ;;
  esac
  echo "== $target: $(find "corpus/$target" -type f | wc -l) seeds"
  cargo +nightly fuzz run --fuzz-dir . --target-dir ../../target/fuzz --sanitizer none "$target" \
    "corpus/$target" -- -max_total_time="$seconds" -max_len=16384 -rss_limit_mb=512 \
    -print_final_stats=1 >"corpus/$target.log" 2>&1 || {
      # What was found stands before a long backtrace.
      grep -E -A 2 'panicked at|^error|ERROR|Test unit' "corpus/$target.log" || tail -n 40 "corpus/$target.log"
      exit 1
    }
  grep -E 'stat::number_of_executed_units|DONE' "corpus/$target.log"
done
