# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154 # scripts/bench.sh and its parts share variables
# The workloads whose TLS ends in the proxy. Read by scripts/bench.sh.

workload_tls_handshake() {
	local before after lines rate
	time_wait_ready
	before=$(cpu)
	lines=$(load "$loadtool" tls-handshakes -addr "$(target tls)" -duration "${TLS_SECONDS}s")
	after=$(cpu)
	rate=$(field rate <<<"$lines")
	echo "rate $rate"
	unit_costs '' "$rate" "$before" "$after" "$(field connections <<<"$lines")"
}

workload_tls_bulk() {
	local direction flags before after lines rate gigabytes
	for direction in up down; do
		flags=()
		[[ $direction == down ]] || flags=(-up)
		before=$(cpu)
		lines=$(load "$loadtool" tls-bulk "${flags[@]}" -addr "$(target stream)" -duration "${TLS_SECONDS}s")
		after=$(cpu)
		rate=$(field rate <<<"$lines")
		gigabytes=$(awk -v bytes="$(field bytes <<<"$lines")" 'BEGIN { print bytes / 1e9 }')
		echo "$direction-rate $rate"
		unit_costs "$direction-" "$(awk -v rate="$rate" 'BEGIN { print rate / 8 }')" "$before" "$after" "$gigabytes" 1
	done
}

workload_tls_first() {
	load "$loadtool" tls-first -addr "$(target tls)" -connections "$TLS_FIRST"
}
