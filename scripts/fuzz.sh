#!/usr/bin/env bash
# Runs every fuzz target of the module: fuzz.sh [BUDGET [REGEX]], 3m unless told
# otherwise. BUDGET is for all of it; what the building leaves is shared out evenly,
# 2 s a target at least. REGEX chooses targets by "folder FuzzName".
#
# A target that ends in nothing but "context deadline exceeded" has found nothing: Go
# sometimes reports the end of the time itself as the failure (https://go.dev/issue/75804).
# Every real find says so in other words: a written input, a failing seed, a hang.
#
# A target ends in its time: minimising a find is bounded too, and one that hangs is
# a failure. What was found is in testdata/fuzz of its package, where `go test` runs it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
go=${GO:-go}

case ${1:-3m} in
*m) budget=$((${1%m} * 60)) ;;
*s) budget=${1%s} ;;
'') budget=180 ;;
*)
	echo 'fuzz.sh: the budget is a whole number of seconds or minutes, such as 90s or 3m' >&2
	exit 2
	;;
esac
choose=${2:-.}

mapfile -t targets < <(grep -rEo --include='*_test.go' '^func Fuzz[A-Za-z0-9_]*' . |
	sed -E 's|^\./(.*)/[^/]*:func |\1 |' | sort -u | grep -E "$choose")
if [[ ${#targets[@]} -eq 0 ]]; then
	echo 'fuzz.sh: no fuzz target found' >&2
	exit 1
fi

out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
mapfile -t folders < <(printf '%s\n' "${targets[@]%% *}" | sort -u)
for folder in "${folders[@]}"; do
	printf '%3ds building %s\n' "$SECONDS" "$folder"
	"$go" test -c -fuzz=. -o "$out/${folder//\//-}" "./$folder"
done
cache=$("$go" env GOCACHE)/fuzz/$("$go" list -m)

# ended_by_time NAME LOG: all that a failed target has said is that its time was over.
ended_by_time() {
	[[ $(sed -n "/^--- FAIL: $1 /,\$p" "$2" | sed -E 's/ \([0-9.]+s\)$//') == "--- FAIL: $1"$'\n    context deadline exceeded\nFAIL' ]]
}

left=${#targets[@]} failed=()
for target in "${targets[@]}"; do
	folder=${target%% *} name=${target##* }
	each=$(((budget - SECONDS) / left))
	[[ $each -ge 2 ]] || each=2
	printf '%3ds %s for %ds (%d to go)\n' "$SECONDS" "$target" "$each" "$left"
	mkdir -p "$cache/$folder"
	if ! (cd "$folder" && timeout -k 5 "$((each + 30))" "$out/${folder//\//-}" -test.run '^$' -test.fuzz "^$name\$" \
		-test.fuzztime "${each}s" -test.fuzzminimizetime 1s -test.fuzzcachedir "$cache/$folder") >"$out/log" 2>&1 &&
		! ended_by_time "$name" "$out/log"; then
		failed+=("$target")
		tail -n 60 "$out/log"
	fi
	left=$((left - 1))
done
if [[ ${#failed[@]} -gt 0 ]]; then
	printf 'fuzz.sh: failed: %s\n' "${failed[@]}" >&2
	exit 1
fi
printf '%3ds %d targets, nothing found\n' "$SECONDS" "${#targets[@]}"
