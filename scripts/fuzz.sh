#!/usr/bin/env bash
# Runs every fuzz target of the module for a while each: fuzz.sh [DURATION].
# `go test -fuzz` takes one target of one package at a time, hence the loop.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
duration=${1:-10s}
go=${GO:-go}

ran=0
while IFS=: read -r file target; do
	echo "== ${file%/*} $target ($duration)"
	"$go" test -run '^$' -fuzz "^$target\$" -fuzztime "$duration" "./${file%/*}"
	ran=$((ran + 1))
done < <(grep -rEo --include='*_test.go' '^func Fuzz[A-Za-z0-9_]*' . |
	sed -e 's|^\./||' -e 's|func ||' | sort)

if [[ $ran -eq 0 ]]; then
	echo 'fuzz.sh: no fuzz target found' >&2
	exit 1
fi
