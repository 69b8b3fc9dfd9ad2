# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154 # scripts/bench.sh and its parts share variables
# The servers behind the proxies, and which ports they and the proxies use. Read
# by scripts/bench.sh.

# A service is a backend and, before it, a listener of every proxy. It has two
# ports of its own, in this order. TLS ends in the proxy, so that behind "tls"
# is the Redis that "redis" has, too.
services=(redis iperf udp udp-trains sink tls stream dns)
declare -A backend_port=() front_port=()
for i in "${!services[@]}"; do
	backend_port[${services[i]}]=$((PORT_BASE + 2 * i))
	front_port[${services[i]}]=$((PORT_BASE + 2 * i + 1))
done
backend_port[tls]=${backend_port[redis]}

# services_of WORKLOAD: what a proxy has to offer for it, beside Redis, as lines
# of a name and a protocol.
services_of() {
	case $1 in
	bulk) echo 'iperf tcp' ;;
	udp) printf '%s\n' 'udp udp' 'udp-trains udp' ;;
	udp-oneway) echo 'sink udp' ;;
	tls-handshake) echo 'tls tls' ;;
	tls-first) echo 'tls tls' ;;
	tls-bulk) echo 'stream tls' ;;
	dns) echo 'dns udp' ;;
	esac
	echo 'redis tcp' # how start_proxy knows that it forwards
}

# backend_of SERVICE PROXY: where the proxy finds it.
backend_of() {
	case $1 in
	# Each proxy has its own address of Redis: see addresses.
	redis | tls) echo "${back[$2]}:${backend_port[redis]}" ;;
	*) echo "127.0.0.1:${backend_port[$1]}" ;;
	esac
}

# target SERVICE: where clients of the present proxy connect.
target() {
	if [[ $proxy_name == direct ]]; then
		backend_of "$1" direct
	elif [[ $proxy_name == floor && $floor_command == *-udp && $1 == redis ]]; then
		backend_of redis floor # the floor of datagrams relays nothing else
	else
		echo "${front[$proxy_name]}:${front_port[$1]}"
	fi
}

# supports PROXY WORKLOAD: HAProxy cannot forward UDP, there is nothing to compare
# with where TLS is not ended, and the floor is of rates only.
supports() {
	case $1:$2 in
	haproxy:udp | haproxy:udp-oneway | haproxy:dns) return 1 ;;
	direct:idle | direct:tls-*) return 1 ;;
	floor:idle | floor:latency | floor:tls-*) return 1 ;;
	esac
}

# start_backends ROUND; also in the middle of one, if a backend has ended.
backends=()
start_backends() {
	local workload
	addresses "$1"
	start redis.log "$load_cpus" redis-server --port "${backend_port[redis]}" --bind 127.0.0.1 "${back[@]}" \
		--save '' --appendonly no --dir "$work" --maxclients 10000 --tcp-backlog 511 --loglevel warning
	redis=$started
	backends=("$redis")
	for workload in "${workloads[@]}"; do
		case $workload in
		bulk) backend iperf.log iperf3 --server --bind 127.0.0.1 --port "${backend_port[iperf]}" ;;
		udp)
			backend udp.log "$loadtool" udp-echo -listen "$(backend_of udp)"
			backend udp-trains.log "$loadtool" udp-echo -trains -listen "$(backend_of udp-trains)"
			;;
		tls-bulk) backend stream.log "$loadtool" stream -listen "$(backend_of stream)" ;;
		dns)
			mkdir -p "$work/knot"
			knot_config >"$work/knot.conf"
			knot_zone >"$work/bench.test.zone"
			backend knot.log knotd -c "$work/knot.conf"
			;;
		esac
	done
	answers 127.0.0.1 "${backend_port[redis]}" "$redis" || die "redis-server does not answer: $(tail -n 3 "$work/redis.log")"
	# Only our Redis knows it: start_proxy asks for it through the proxy.
	token=$$-$RANDOM
	redis-cli -h 127.0.0.1 -p "${backend_port[redis]}" set bench-token "$token" >/dev/null
}

# backend LOG COMMAND...
backend() {
	start "$1" "$load_cpus" "${@:2}"
	backends+=("$started")
}

stop_backends() {
	local pid
	for pid in "${backends[@]}"; do stop "$pid"; done
	backends=()
}

backends_live() {
	local pid
	for pid in "${backends[@]}"; do
		kill -0 "$pid" 2>/dev/null || return 1
	done
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

knot_config() {
	cat <<-EOF
		server:
		    rundir: "$work/knot"
		    listen: 127.0.0.1@${backend_port[dns]}
		    udp-workers: 1
		    tcp-workers: 1
		    background-workers: 1
		database:
		    storage: "$work/knot"
		log:
		  - target: stderr
		    any: warning
		zone:
		  - domain: bench.test
		    file: "$work/bench.test.zone"
		    zonefile-sync: -1
		    journal-content: none
	EOF
}

# knot_zone and dns_queries agree on the names.
dns_names=1000
knot_zone() {
	# shellcheck disable=SC2016 # $ORIGIN is the zone file's
	printf '%s\n' '$ORIGIN bench.test.' '@ 3600 SOA ns admin 1 3600 600 86400 300' '@ 3600 NS ns' 'ns 3600 A 192.0.2.1'
	awk -v n="$dns_names" 'BEGIN { for (i = 0; i < n; i++) printf "h%d 300 A 192.0.2.%d\n", i, i % 254 + 1 }'
}

dns_queries() { awk -v n="$dns_names" 'BEGIN { for (i = 0; i < n; i++) printf "h%d.bench.test A\n", i }'; }
