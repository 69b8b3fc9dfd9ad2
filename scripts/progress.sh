#!/usr/bin/env bash
# progress.sh GO test ...: runs the command and says on standard error, at once and
# every 15 s, which tests run and how many compilers. go test itself says nothing until
# the first package is built and has passed, which on two cores takes minutes.
set -euo pipefail

exec {never}<> <(:) # a read of it waits, without a process of its own
at_work() {
	local go names
	go=$(ps -o pid= --ppid $$ | tr -d ' ' | paste -sd,)
	names=$(ps -o pid=,comm= --ppid "${go:-0}" || true)
	local tests='' compilers pid name folder
	while read -r pid name; do
		if [[ $name == *.test ]]; then # it runs in the folder of its package
			folder=$(readlink "/proc/$pid/cwd" || true)
			tests+="${folder#"$PWD"/} "
		fi
	done <<<"$names"
	compilers=$(grep -cE ' (compile|link|asm|vet|cgo|gcc)$' <<<"$names" || true)
	echo "... $((SECONDS / 60))m$((SECONDS % 60))s: ${tests:+testing ${tests% }; }compiling: ${compilers:-0}" >&2
}
echo '... building the tests; with nothing in the cache that takes some minutes' >&2
# exec would leave nothing to end the clock.
(
	while ! read -rt 15 -u "$never"; do
		at_work
	done
) &
clock=$!
trap 'kill "$clock" 2>/dev/null || true' EXIT
"$@"
