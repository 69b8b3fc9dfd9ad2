# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154 # scripts/bench.sh and its parts share variables
# The workloads over TCP. Read by scripts/bench.sh; a workload_NAME function
# prints "metric value" lines for the proxy that start_proxy started.

# redis_rate ARGUMENTS...: redis-benchmark's requests per second.
redis_rate() {
	local csv status
	csv=$(load redis-benchmark -h "$host" -p "$port" -c 50 --csv "$@" 2>"$work/redis-benchmark.log") || {
		status=$? # 124: it took too long
		say "redis-benchmark, status $status: $(grep -v '^WARNING' "$work/redis-benchmark.log" | tail -n 1)"
		return 1
	}
	awk -F, 'NR == 2 { gsub(/"/, "", $2); print $2; found = 1 } END { exit !found }' <<<"$csv"
}

# time_wait_ready waits until the kernel has room for what a measurement leaves
# in TIME_WAIT, both legs of each connection: a minute at most. Without room it
# skips that state, which would make some measurements cheaper than others.
time_wait_ready() {
	local room=$(($(</proc/sys/net/ipv4/tcp_max_tw_buckets) - 2 * (CONNECTS + CONNECTS / 10)))
	for _ in {1..61}; do
		[[ $(awk '/^TCP:/ { print $7 }' /proc/net/sockstat) -gt $room ]] || return 0
		sleep 1
	done
}

workload_connect() {
	local before after rate
	time_wait_ready
	redis_rate -k 0 -n $((CONNECTS / 10)) -t ping_inline >/dev/null
	before=$(cpu)
	rate=$(redis_rate -k 0 -n "$CONNECTS" -t ping_inline)
	after=$(cpu)
	echo "rate $rate"
	unit_costs '' "$rate" "$before" "$after" "$CONNECTS"
}

workload_message() {
	local before after rate
	redis_rate -k 1 -P 1 -n $((MESSAGES / 10)) -t get >/dev/null
	before=$(cpu)
	rate=$(redis_rate -k 1 -P 1 -n "$MESSAGES" -t get)
	after=$(cpu)
	echo "rate $rate"
	unit_costs '' "$rate" "$before" "$after" "$MESSAGES"
}

# field NAME: its value in "name value" lines.
field() { awk -v name="$1" '$1 == name { print $2; found = 1 } END { exit !found }'; }

# unit_costs PREFIX RATE CPU-BEFORE CPU-AFTER COUNT [PER]: CPU time for one of COUNT,
# in units of which PER are a second, and how much of what the proxy may use of its
# cores it needed for RATE. Below about 95 % something else set the rate.
unit_costs() {
	local each units=${6:-1000000}
	each=$(per "$3" "$4" "$5" "$units")
	cpu_metric "$1cpu" "$each"
	cpu_metric "$1busy" "$(awk -v rate="$2" -v each="$each" -v units="$units" -v n="$workers" -v part="$quota_part" \
		'BEGIN { printf "%.1f\n", 100 * rate * each / units / n / part }')"
}

# bulk_run SECONDS FLAGS...: prints "Gbit/s GB CPU-seconds"
bulk_run() {
	local seconds=$1 before after json at
	shift
	before=$(cpu)
	at=$(target iperf)
	json=$(load iperf3 --client "${at%:*}" --port "${at##*:}" --time "$seconds" --json "$@") || {
		say "iperf3: $(jq -r '.error // "failed"' <<<"$json")"
		return 1
	}
	after=$(cpu)
	jq -r '.end.sum_received | "\(.bits_per_second / 1e9) \(.bytes / 1e9)"' <<<"$json" | tr '\n' ' '
	per "$before" "$after" 1 1
}

workload_bulk() {
	local direction flags result rate gigabytes seconds
	for direction in up down; do
		flags=()
		[[ $direction == up ]] || flags=(--reverse)
		bulk_run 1 "${flags[@]}" >/dev/null
		result=$(bulk_run "$BULK_SECONDS" "${flags[@]}")
		read -r rate gigabytes seconds <<<"$result"
		echo "$direction-rate $rate"
		unit_costs "$direction-" "$(awk -v rate="$rate" 'BEGIN { print rate / 8 }')" 0 "$seconds" "$gigabytes" 1
	done
}

workload_idle() {
	load "$loadtool" hold -addr "$host:$port" -pid "$proxy" -warm 200 -conns "$HELD" -settle "$SETTLE"
}

workload_latency() {
	load "$loadtool" rate -addr "$host:$port" -rate "$rate_now" -conns 50 -warm 1s -duration "${RATE_SECONDS}s"
}
