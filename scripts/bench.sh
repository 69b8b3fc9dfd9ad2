#!/usr/bin/env bash
# Compares Poise with HAProxy and nginx stream on this machine and prints one
# Markdown table. What is measured, and how much to believe it: docs/bench.md.
#
#   scripts/bench.sh            the whole table, about an hour
#   scripts/bench.sh --quick    one worker, short rounds, about five minutes
#
# Environment, each with its default; a subset re-runs single cells:
#   PROXIES="direct haproxy nginx poise floor"
#   WORKLOADS="connect message bulk idle latency udp udp-oneway tls-handshake tls-bulk tls-first dns"
#   WORKERS="1 2"     event loops and cores of the proxy, one table part each
#   ROUNDS=5          interleaved rounds; the order of the proxies rotates
#   RATE=             requests/s of the latency workload; empty: half of what the
#                     slowest of PROXIES carries
#   QUOTA=50          percent of a core that each event loop of a proxy may use in the
#                     rows that count a rate, so that the proxy is the limit and not
#                     the load; 0 = no quota
#   PEERS=            folder for HAProxy and nginx of Debian 13, made if it is not there;
#                     empty: below ~/.cache; "host": the programs of this machine
#   OUT=              file for all samples, as JSON
#   POISE=            binary to measure; empty: built from this checkout
#   PORT_BASE=17000   the ports used are PORT_BASE to PORT_BASE+15
set -euo pipefail
[[ -z ${OUT:-} ]] || OUT=$(realpath -m "$OUT")
[[ -z ${POISE:-} ]] || POISE=$(realpath "$POISE")
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage() { sed -n '2,/^set /{/^set /d; s/^# \{0,1\}//; p}' "${BASH_SOURCE[0]}"; }

quick=
case ${1:-} in
'') ;;
--quick) quick=1 ;;
-h | --help) usage && exit ;;
*) usage >&2 && exit 2 ;;
esac

# A measurement must be long against the 10 ms that CPU time is counted in; the
# connections of one must fit the 28 232 local ports there are by default, because
# each is kept from use for a minute (TIME_WAIT).
if [[ $quick ]]; then
	ROUNDS=${ROUNDS:-2} WORKERS=${WORKERS:-1}
	CONNECTS=6000 MESSAGES=30000 BULK_SECONDS=1 HELD=2000 SETTLE=1s RATE_SECONDS=2
	UDP_SECONDS=1 TLS_SECONDS=1 TLS_FIRST=50
else
	ROUNDS=${ROUNDS:-5} WORKERS=${WORKERS:-1 2}
	CONNECTS=20000 MESSAGES=150000 BULK_SECONDS=5 HELD=4000 SETTLE=3s RATE_SECONDS=6
	UDP_SECONDS=4 TLS_SECONDS=5 TLS_FIRST=200
fi
read -ra proxies <<<"${PROXIES:-direct haproxy nginx poise floor}"
all_workloads='connect message bulk idle latency udp udp-oneway tls-handshake tls-bulk tls-first dns'
read -ra workloads <<<"${WORKLOADS:-$all_workloads}"
read -ra worker_counts <<<"$WORKERS"
PORT_BASE=${PORT_BASE:-17000}

# Every proxy has, in every round, two loopback addresses that nobody had before,
# one to listen on and one where it finds Redis. So nothing that an earlier
# measurement left in TIME_WAIT takes a local port from a later one. The random
# part is for a run that follows another at once.
declare -A host_number=([direct]=1 [haproxy]=2 [nginx]=3 [poise]=4 [floor]=5) front=() back=()
loopback=127.$((RANDOM % 250 + 2))
addresses() { # ROUND
	local name
	for name in "${!host_number[@]}"; do
		front[$name]=$loopback.$(($1 % 125)).${host_number[$name]}
		back[$name]=$loopback.$(($1 % 125 + 125)).${host_number[$name]}
	done
}

die() { echo "bench.sh: $*" >&2 && exit 1; }
say() { echo "bench.sh: $*" >&2; }

for name in "${proxies[@]}"; do [[ ${host_number[$name]:-} ]] || die "PROXIES: there is no $name"; done
for name in "${workloads[@]}"; do
	[[ " $all_workloads " == *" $name "* ]] || die "WORKLOADS: there is no $name"
done
for name in "$ROUNDS" "${worker_counts[@]}" "$PORT_BASE"; do
	[[ $name =~ ^[1-9][0-9]*$ ]] || die "ROUNDS, WORKERS, PORT_BASE: $name is not a positive number"
done

#
# Own processes: each is in `own`, and nothing else is ever killed.
#

work=$(mktemp -d "${TMPDIR:-/tmp}/poise-bench.XXXXXX")
samples=$work/samples
declare -A own=()
started=0 # the latest

# start LOG CPUS COMMAND...: in the background, pinned, and below the quota if `held`
# names a group of processes.
held=''
start() {
	local log=$1 cpus=$2
	shift 2
	if [[ $held ]]; then
		# shellcheck disable=SC2016 # the inner shell's
		bash -c 'echo $$ >"$0/cgroup.procs" && exec taskset -c "$@"' "$held" "$cpus" "$@" >"$work/$log" 2>&1 </dev/null &
	else
		taskset -c "$cpus" "$@" >"$work/$log" 2>&1 </dev/null &
	fi
	started=$! # the shell and taskset become the command, so this is its process
	own[$started]=$1
}

# stop PID: politely, and after 5 s not.
stop() {
	local pid=$1
	[[ ${own[$pid]:-} ]] || return 0
	kill -TERM "$pid" 2>/dev/null || true
	for _ in {1..100}; do
		kill -0 "$pid" 2>/dev/null || break
		sleep 0.05
	done
	kill -KILL "$pid" 2>/dev/null || true
	wait "$pid" 2>/dev/null || true
	unset "own[$pid]"
}

cleanup() {
	for pid in "${!own[@]}"; do stop "$pid"; done
	quota_close
	rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

#
# Programs
#

scripts/deps.sh bench
# Sixteen thousand descriptors are two for each of 4 200 connections, and slack.
ulimit -n "$(ulimit -Hn)"
[[ $(ulimit -n) == unlimited || $(ulimit -n) -ge 16384 ]] ||
	die "needs 16384 file descriptors, the hard limit is $(ulimit -Hn) (ulimit -Hn)"

# shellcheck source=scripts/bench/quota.sh
. scripts/bench/quota.sh
# shellcheck source=scripts/bench/backends.sh
. scripts/bench/backends.sh
# shellcheck source=scripts/bench/proxies.sh
. scripts/bench/proxies.sh
# shellcheck source=scripts/bench/tcp.sh
. scripts/bench/tcp.sh
# shellcheck source=scripts/bench/udp.sh
. scripts/bench/udp.sh
# shellcheck source=scripts/bench/tls.sh
. scripts/bench/tls.sh

go=${GO:-go}
"$go" build -buildvcs=false -o "$work/loadtool" ./scripts/loadtool
loadtool=$work/loadtool
if [[ " ${proxies[*]} " == *' poise '* ]]; then
	if [[ ${POISE:-} ]]; then
		poise=$POISE
	else
		poise=$work/poise
		CGO_ENABLED=0 "$go" build -buildvcs=false -trimpath -o "$poise" ./cmd/poise
	fi
fi

peers_open
if [[ " ${proxies[*]} " == *' floor '* ]]; then
	for program in stream bulk udp; do
		"${CC:-cc}" -O2 -o "$work/floor-$program" "scripts/floor/$program.c"
	done
fi
"$loadtool" tls-cert -dir "$work"
quota_open

port_taken() { (exec 3<>"/dev/tcp/$1/$2") 2>/dev/null; }
for port in "${backend_port[@]}" "${front_port[@]}"; do
	! port_taken 127.0.0.1 "$port" || die "port $port is in use; choose another PORT_BASE"
done

# layout WORKERS sets proxy_cpus and load_cpus: disjoint where there are enough
# cores for the proxy and one more; else both use the proxy's.
layout() {
	local workers=$1 cpus
	cpus=$(nproc)
	[[ $workers -le $cpus ]] || die "WORKERS: $workers workers, but only $cpus cores"
	proxy_cpus=0-$((workers - 1))
	load_cpus=$workers
	[[ $cpus -gt $workers ]] || load_cpus=$proxy_cpus
	[[ $cpus -lt $((2 * workers)) ]] || load_cpus=$workers-$((2 * workers - 1))
}

#
# Measuring: each workload function prints "metric value" lines for the proxy
# that start_proxy started.
#

load() { taskset -c "$load_cpus" timeout --foreground --kill-after=5 90 "$@"; }

cpu() { if [[ $proxy -ne 0 ]]; then "$loadtool" cpu -pid "$proxy"; else echo 0; fi; }

# per BEFORE AFTER COUNT FACTOR: (AFTER - BEFORE) * FACTOR / COUNT
per() { awk -v a="$1" -v b="$2" -v n="$3" -v f="$4" 'BEGIN { printf "%.4f\n", (b - a) * f / n }'; }

# cpu_metric NAME VALUE: without a proxy there is no CPU time to report.
cpu_metric() { [[ $proxy -eq 0 ]] || echo "$1 $2"; }

# record ROUND WORKERS WORKLOAD PROXY: one measurement, or one line saying that
# it failed. A failure is shown below the table and does not end the run.
record() {
	local round=$1 workers=$2 workload=$3 name=$4 lines metric value status lines='' error=''
	if ! backends_live; then
		say "a backend has ended: $(tail -qn 1 "$work"/*.log | paste -sd ' ')"
		stop_backends
		start_backends "$round"
	fi
	say "workers $workers, round $round of $ROUNDS, $workload: $name"
	quota_set "$workers" "$workload"
	if start_proxy "$name" "$workers" "$workload"; then
		# Not as a condition: that would switch errexit off within the function.
		set +e
		lines=$(set -e && "workload_${workload//-/_}" 2>"$work/error")
		status=$?
		set -e
		[[ $status -eq 0 ]] || error=$(tail -n 1 "$work/error" | grep . || echo "status $status")
	else
		error="does not forward: $(tail -n 1 "$work/$name.log" 2>/dev/null | grep . || echo 'nothing in its log')"
	fi
	stop "$proxy"
	if [[ $error ]]; then
		say "$name failed: $error"
		failed=1
		lines="failed 0"
	fi
	while read -r metric value; do
		[[ $metric ]] || continue
		jq -cn --argjson workers "$workers" --argjson round "$round" --arg proxy "$name" --arg workload "$workload" \
			--arg metric "$metric" --argjson value "$value" --arg error "$error" \
			'{$workers, $round, $proxy, $workload, $metric, $value} + if $error == "" then {} else {$error} end' >>"$samples"
	done <<<"$lines"
}

# half_load WORKERS sets rate_now to half of what the slowest proxy carries.
half_load() {
	local name rate slowest=
	for name in "${proxies[@]}"; do
		[[ $name != direct && $name != floor ]] || continue
		quota_set "$1" latency
		say "workers $1, capacity for the latency workload: $name"
		if start_proxy "$name" "$1" latency && redis_rate -n 5000 -t get >/dev/null &&
			rate=$(redis_rate -n $((MESSAGES / 3)) -t get); then
			slowest=$(awk -v a="$slowest" -v b="$rate" 'BEGIN { print (a == "" || b + 0 < a + 0) ? b : a }')
		fi
		stop "$proxy"
	done
	[[ $slowest ]] || die 'no proxy to derive the rate of the latency workload from: set RATE'
	rate_now=$(awk -v a="$slowest" 'BEGIN { printf "%d\n", a / 2 }')
}

#
# The run
#

# order ROUND NAMES...: rotated by one each round, so that nobody is always
# first or always behind the same neighbour.
order() {
	local shift_by=$((($1 - 1) % ($# - 1))) names
	names=("${@:2}")
	echo "${names[@]:shift_by}" "${names[@]:0:shift_by}"
}

version() { "$@" 2>&1 | grep -oE '[0-9]+\.[0-9]+(\.[0-9]+)?' | head -n 1; }

machine() {
	printf '%s CPUs (%s), Linux %s, HAProxy %s, nginx %s, Redis %s, iperf3 %s' \
		"$(nproc)" "$(awk -F': ' '/^model name/ { print $2; exit }' /proc/cpuinfo)" "$(uname -r)" \
		"$(version run_haproxy -v)" "$(version run_nginx -v)" "$(version redis-server -v)" "$(version iperf3 -v)"
	[[ " ${workloads[*]} " != *' dns '* ]] || printf ', Knot DNS %s, dnsperf %s' "$(version knotd -V)" "$(dnsperf -h 2>&1 | awk '/^Version/ { print $2 }')"
	[[ " ${workloads[*]} " != *' tls-'* ]] || printf ', HAProxy with OpenSSL %s' "$(run_haproxy -vv | sed -n 's/^Running on OpenSSL version : OpenSSL \([^ ]*\).*/\1/p')"
	[[ -z ${poise:-} ]] || printf ', Poise %s' "$("$poise" version | awk '{ print $2; exit }')"
	printf ', %s, rounds: %s, %s' "$(quota_words)" "$ROUNDS" "$(date -u +%F)"
	[[ -z $rates_used ]] || printf '; latency at %s requests/s' "$rates_used"
}

read -r busy _ </proc/loadavg
awk -v l="$busy" 'BEGIN { exit !(l > 0.5) }' &&
	say "the load average is $busy: others are at work here, so the numbers are of little worth"

rates_used='' failed=0
for workers in "${worker_counts[@]}"; do
	layout "$workers"
	for ((round = 1; round <= ROUNDS; round++)); do
		start_backends "$round"
		for workload in "${workloads[@]}"; do
			subjects=("${proxies[@]}")
			if [[ $workload == latency ]]; then
				# Added latency is measured against none.
				[[ " ${subjects[*]} " == *' direct '* ]] || subjects+=(direct)
				if [[ $round -eq 1 ]]; then
					rate_now=${RATE:-}
					[[ $rate_now ]] || half_load "$workers"
					rates_used=${rates_used:+$rates_used and }$rate_now
				fi
			fi
			for name in $(order "$round" "${subjects[@]}"); do
				supports "$name" "$workload" || continue
				record "$round" "$workers" "$workload" "$name"
			done
		done
		stop_backends
	done
done

"$loadtool" report -out "${OUT:-}" -machine "$(machine)" <"$samples"
[[ $failed -eq 0 ]]
