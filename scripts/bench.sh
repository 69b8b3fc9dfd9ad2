#!/usr/bin/env bash
# Compares Poise with HAProxy and nginx stream on this machine and prints one
# Markdown table. What is measured, and how much to believe it: docs/bench.md.
#
#   scripts/bench.sh            the whole table, about half an hour
#   scripts/bench.sh --quick    one worker, short rounds, about two minutes
#
# Environment, each with its default; a subset re-runs single cells:
#   PROXIES="direct haproxy nginx poise"
#   WORKLOADS="connect message bulk idle latency"
#   WORKERS="1 2"     event loops and cores of the proxy, one table part each
#   ROUNDS=5          interleaved rounds; the order of the proxies rotates
#   RATE=             requests/s of the latency workload; empty: half of what the
#                     slowest of PROXIES carries
#   OUT=              file for all samples, as JSON
#   POISE=            binary to measure; empty: built from this checkout
#   PORT_BASE=17000   the ports used are PORT_BASE to PORT_BASE+3
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
else
	ROUNDS=${ROUNDS:-5} WORKERS=${WORKERS:-1 2}
	CONNECTS=20000 MESSAGES=150000 BULK_SECONDS=5 HELD=4000 SETTLE=3s RATE_SECONDS=6
fi
read -ra proxies <<<"${PROXIES:-direct haproxy nginx poise}"
read -ra workloads <<<"${WORKLOADS:-connect message bulk idle latency}"
read -ra worker_counts <<<"$WORKERS"
PORT_BASE=${PORT_BASE:-17000}
redis_port=$PORT_BASE iperf_port=$((PORT_BASE + 1))
front_redis=$((PORT_BASE + 2)) front_iperf=$((PORT_BASE + 3))

# Every proxy has, in every round, two loopback addresses that nobody had before,
# one to listen on and one where it finds Redis. So nothing that an earlier
# measurement left in TIME_WAIT takes a local port from a later one. The random
# part is for a run that follows another at once.
declare -A host_number=([direct]=1 [haproxy]=2 [nginx]=3 [poise]=4) front=() back=()
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
	[[ $name =~ ^(connect|message|bulk|idle|latency)$ ]] || die "WORKLOADS: there is no $name"
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

# start LOG CPUS COMMAND...: in the background, pinned.
start() {
	local log=$1 cpus=$2
	shift 2
	taskset -c "$cpus" "$@" >"$work/$log" 2>&1 </dev/null &
	started=$! # taskset becomes the command, so this is its process
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

port_taken() { (exec 3<>"/dev/tcp/$1/$2") 2>/dev/null; }
for port in "$redis_port" "$iperf_port" "$front_redis" "$front_iperf"; do
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

# start_backends ROUND; also in the middle of one, if a backend has ended.
start_backends() {
	addresses "$1"
	start redis.log "$load_cpus" redis-server --port "$redis_port" --bind 127.0.0.1 "${back[@]}" \
		--save '' --appendonly no --dir "$work" --maxclients 10000 --tcp-backlog 511 --loglevel warning
	redis=$started
	start iperf.log "$load_cpus" iperf3 --server --bind 127.0.0.1 --port "$iperf_port"
	iperf=$started
	answers 127.0.0.1 "$redis_port" "$redis" || die "redis-server does not answer: $(tail -n 3 "$work/redis.log")"
	# Only our Redis knows it: start_proxy asks for it through the proxy.
	token=$$-$RANDOM
	redis-cli -h 127.0.0.1 -p "$redis_port" set bench-token "$token" >/dev/null
}

# answers HOST PORT PID: waits for PONG, up to 10 s, while the process lives.
answers() {
	local until=$((SECONDS + 10))
	while [[ $SECONDS -lt $until ]]; do
		kill -0 "$3" 2>/dev/null || return 1
		[[ $(timeout 2 redis-cli -h "$1" -p "$2" ping 2>/dev/null) != PONG ]] || return 0
		sleep 0.1
	done
	return 1
}

# start_proxy NAME WORKERS sets proxy to the process and host, port and
# bulk_host, bulk_port to where clients connect. The proxy is known to forward
# to our Redis when this returns. A fresh process for every measurement: none
# inherits the heap of the one before.
start_proxy() {
	local name=$1 workers=$2
	proxy=0 host=${front[$name]} port=$front_redis bulk_host=${front[$name]} bulk_port=$front_iperf
	case $name in
	direct) started=$redis host=${back[direct]} port=$redis_port bulk_host=127.0.0.1 bulk_port=$iperf_port ;;
	haproxy)
		haproxy_config "$workers" >"$work/haproxy.cfg"
		start haproxy.log "$proxy_cpus" haproxy -db -f "$work/haproxy.cfg"
		;;
	nginx)
		nginx_config "$workers" >"$work/nginx.conf"
		start nginx.log "$proxy_cpus" nginx -e stderr -p "$work" -c "$work/nginx.conf"
		;;
	poise)
		poise_config "$workers" >"$work/poise.yaml"
		start poise.log "$proxy_cpus" "$poise" run -c "$work/poise.yaml"
		;;
	esac
	[[ $name == direct ]] || proxy=$started
	answers "$host" "$port" "$started" &&
		[[ $(timeout 2 redis-cli -h "$host" -p "$port" get bench-token) == "$token" ]]
}

haproxy_config() {
	cat <<-EOF
		global
		    nbthread $1
		    maxconn 7000
		defaults
		    mode tcp
		    option splice-auto
		    timeout connect 5s
		    timeout client 10m
		    timeout server 10m
		listen redis
		    bind ${front[haproxy]}:$front_redis
		    server backend ${back[haproxy]}:$redis_port
		listen iperf
		    bind ${front[haproxy]}:$front_iperf
		    server backend 127.0.0.1:$iperf_port
	EOF
}

nginx_config() {
	local module=/usr/lib/nginx/modules/ngx_stream_module.so
	[[ ! -e $module ]] || echo "load_module $module;"
	cat <<-EOF
		daemon off;
		worker_processes $1;
		pid $work/nginx.pid;
		error_log stderr crit;
		events { worker_connections 16384; }
		stream {
		    access_log off;
		    proxy_connect_timeout 5s;
		    proxy_timeout 10m;
		    server { listen ${front[nginx]}:$front_redis; proxy_pass ${back[nginx]}:$redis_port; }
		    server { listen ${front[nginx]}:$front_iperf; proxy_pass 127.0.0.1:$iperf_port; }
		}
	EOF
}

poise_config() {
	cat <<-EOF
		admin: {socket: "$work/poise.sock", http: ""}
		log: {level: warn, access: none}
		runtime: {workers: $1, drain: 1s}
		services:
		  redis: {listen: ["${front[poise]}:$front_redis"], pool: redis}
		  iperf: {listen: ["${front[poise]}:$front_iperf"], pool: iperf}
		pools:
		  redis: {balance: least-conn, backends: ["${back[poise]}:$redis_port"], check: {type: none}}
		  iperf: {balance: least-conn, backends: ["127.0.0.1:$iperf_port"], check: {type: none}}
	EOF
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
	cpu_metric cpu "$(per "$before" "$after" "$CONNECTS" 1000000)"
}

workload_message() {
	local before after rate
	redis_rate -k 1 -P 1 -n $((MESSAGES / 10)) -t get >/dev/null
	before=$(cpu)
	rate=$(redis_rate -k 1 -P 1 -n "$MESSAGES" -t get)
	after=$(cpu)
	echo "rate $rate"
	cpu_metric cpu "$(per "$before" "$after" "$MESSAGES" 1000000)"
}

# bulk_run SECONDS FLAGS...: prints "Gbit/s GB CPU-seconds"
bulk_run() {
	local seconds=$1 before after json
	shift
	before=$(cpu)
	json=$(load iperf3 --client "$bulk_host" --port "$bulk_port" --time "$seconds" --json "$@") || {
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
		cpu_metric "$direction-cpu" "$(per 0 "$seconds" "$gigabytes" 1)"
	done
}

workload_idle() {
	[[ $proxy -ne 0 ]] || return 0 # nothing to weigh
	load "$loadtool" hold -addr "$host:$port" -pid "$proxy" -warm 200 -conns "$HELD" -settle "$SETTLE"
}

workload_latency() {
	load "$loadtool" rate -addr "$host:$port" -rate "$rate_now" -conns 50 -warm 1s -duration "${RATE_SECONDS}s"
}

# record ROUND WORKERS WORKLOAD PROXY: one measurement, or one line saying that
# it failed. A failure is shown below the table and does not end the run.
record() {
	local round=$1 workers=$2 workload=$3 name=$4 lines metric value status lines='' error=''
	if ! kill -0 "$redis" 2>/dev/null || ! kill -0 "$iperf" 2>/dev/null; then
		say "a backend has ended: $(tail -qn 1 "$work/redis.log" "$work/iperf.log" | paste -sd ' ')"
		stop "$redis" && stop "$iperf"
		start_backends "$round"
	fi
	say "workers $workers, round $round of $ROUNDS, $workload: $name"
	if start_proxy "$name" "$workers"; then
		# Not as a condition: that would switch errexit off within the function.
		set +e
		lines=$(set -e && "workload_$workload" 2>"$work/error")
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
		[[ $name != direct ]] || continue
		say "workers $1, capacity for the latency workload: $name"
		if start_proxy "$name" "$1" && redis_rate -n 5000 -t get >/dev/null &&
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
		"$(version haproxy -v)" "$(version nginx -v)" "$(version redis-server -v)" "$(version iperf3 -v)"
	[[ -z ${poise:-} ]] || printf ', Poise %s' "$("$poise" version | awk '{ print $2; exit }')"
	printf ', rounds: %s, %s' "$ROUNDS" "$(date -u +%F)"
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
				record "$round" "$workers" "$workload" "$name"
			done
		done
		stop "$iperf"
		stop "$redis"
	done
done

"$loadtool" report -out "${OUT:-}" -machine "$(machine)" <"$samples"
[[ $failed -eq 0 ]]
