# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154 # scripts/bench.sh and its parts share variables
# The workloads over UDP. Read by scripts/bench.sh.

# Before anything is counted, what a tenth of the load is for TCP.
udp_warm=500ms

share() { awk -v a="$1" -v b="$2" 'BEGIN { printf "%.4f\n", b ? 100 * a / b : 0 }'; }

# udp_load PREFIX TOTAL COMMAND...: one load of the tool's, of which its output names
# the total TOTAL.
udp_load() {
	local prefix=$1 total=$2 before after lines rate
	shift 2
	before=$(cpu)
	lines=$(load "$loadtool" "$@" -warm "$udp_warm" -duration "${UDP_SECONDS}s")
	after=$(cpu)
	rate=$(field rate <<<"$lines")
	total=$(field "$total" <<<"$lines")
	echo "$prefix-rate $rate"
	unit_costs "$prefix-" "$rate" "$before" "$after" "$total"
	echo "$prefix-lost $(share "$(field lost <<<"$lines")" "$total")"
	[[ $lines != *p99* ]] || echo "$prefix-p99 $(field p99 <<<"$lines")"
}

workload_udp() {
	udp_load trains requests udp-rate -trains -addr "$(target udp-trains)" -clients 4 -outstanding 32
	udp_load plain requests udp-rate -addr "$(target udp)" -clients 4 -outstanding 32
	udp_load many requests udp-rate -addr "$(target udp)" -clients 200 -outstanding 1
}

workload_udp_oneway() {
	local sink
	sink=$(backend_of sink)
	udp_load trains sent udp-blast -trains -addr "$(target sink)" -sink "$sink"
	udp_load plain sent udp-blast -addr "$(target sink)" -sink "$sink"
}

# dns_run SECONDS: prints what dnsperf does.
dns_run() {
	local at
	at=$(target dns)
	load dnsperf -s "${at%:*}" -p "${at##*:}" -d "$work/queries" -l "$1" -c 20 -T 1 -q 100 2>&1 || {
		say "dnsperf, status $?"
		return 1
	}
}

workload_dns() {
	local before after text rate sent
	dns_queries >"$work/queries"
	dns_run 1 >/dev/null
	before=$(cpu)
	text=$(dns_run "$UDP_SECONDS")
	after=$(cpu)
	rate=$(awk '/Queries per second:/ { print $4 }' <<<"$text")
	sent=$(awk '/Queries sent:/ { print $3 }' <<<"$text")
	[[ $rate && $sent ]] || {
		say "dnsperf: $(tail -n 1 <<<"$text")"
		return 1
	}
	# Only answers of the zone: of what is refused there could be any number.
	grep -q 'NOERROR .*(100' <<<"$text" || {
		say "dnsperf: $(grep 'Response codes' <<<"$text")"
		return 1
	}
	echo "rate $rate"
	unit_costs '' "$rate" "$before" "$after" "$sent"
	echo "lost $(share "$(awk '/Queries lost:/ { print $3 }' <<<"$text")" "$sent")"
}
