#!/usr/bin/env bash
# Runs every fuzz target of the module: fuzz.sh [BUDGET [REGEX]], 3m unless told
# otherwise. BUDGET is for all of it; what the building leaves is shared out evenly,
# 2 s a target at least. REGEX chooses targets by "folder FuzzName".
#
# A target that ends in nothing but "context deadline exceeded" has found nothing: Go
# sometimes reports the end of the time itself as the failure (https://go.dev/issue/75804).
# A find says so in other words: a written input, a failing seed.
#
# A target ends in its time: minimising a find is bounded too. One that hangs when its
# time is over has passed, says Go. So it is a failure if nothing is executed for 3 s (Go
# tells the count every 3 s: a turn of 3 s or more is needed), and again in a second
# turn, because a busy machine may stand still once. The input of a hang is not written.
# What else was found is in testdata/fuzz of its package, where `go test` runs it.
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

# ended_by_time NAME: all that a failed target has said is that its time was over.
ended_by_time() {
	[[ $(sed -n "/^--- FAIL: $1 /,\$p" "$out/log" | sed -E 's/ \([0-9.]+s\)$//') == "--- FAIL: $1"$'\n    context deadline exceeded\nFAIL' ]]
}

# stood_still: nothing was executed for 3 s of the latest turn.
stood_still() {
	awk -F'[:,( ]+' '/^fuzz: elapsed: .* execs: / {
		at = $3 + 0; execs = $5
		if (execs != last) { last = execs; since = at }
		if (at - since >= 3) { found = 1; exit }
	} END { exit !found }' "$out/log"
}

# turn FOLDER NAME SECONDS gives a target one turn; it fails if something was found.
turn() {
	(cd "$1" && timeout -k 5 "$(($3 + 30))" "$out/${1//\//-}" -test.run '^$' -test.fuzz "^$2\$" \
		-test.fuzztime "${3}s" -test.fuzzminimizetime 1s -test.fuzzcachedir "$cache/$1") >"$out/log" 2>&1 || ended_by_time "$2"
}

left=${#targets[@]} failed=()
for target in "${targets[@]}"; do
	folder=${target%% *} name=${target##* }
	each=$(((budget - SECONDS) / left))
	[[ $each -ge 2 ]] || each=2
	printf '%3ds %s for %ds (%d to go)\n' "$SECONDS" "$target" "$each" "$left"
	mkdir -p "$cache/$folder"
	found=''
	turn "$folder" "$name" "$each" || found=1
	if [[ ! $found ]] && stood_still; then
		printf '%3ds %s stands still; again\n' "$SECONDS" "$target"
		turn "$folder" "$name" "$each" && ! stood_still || found=1
	fi
	if [[ $found ]]; then
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
