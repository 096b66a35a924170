#!/usr/bin/env bash
# Fails if FILE is larger than 103 % of BUDGET in tests/budgets.toml. With RECORD_BUDGETS=1 its size
# is recorded first: cross/within.sh FILE BUDGET
set -euo pipefail
cd "$(dirname "$0")/.."

size=$(stat -c %s "$1")
test -z "${RECORD_BUDGETS-}" || sed -i "s/^$2 = .*/$2 = $size/" tests/budgets.toml
recorded=$(sed -n "s/^$2 = //p" tests/budgets.toml)
echo "$1: $size bytes, $recorded recorded, 3 % more allowed"
test "$size" -le $((recorded + recorded * 3 / 100))
