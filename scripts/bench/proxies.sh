# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154 # scripts/bench.sh and its parts share variables
# The proxies and their configurations. Read by scripts/bench.sh.

# The peers are the newest that can be had, with their own C library and OpenSSL
# (scripts/bench/peers.sh): `haproxy` and `nginx` are how they are started.
haproxy=(haproxy) nginx=(nginx) stream_module=/usr/lib/nginx/modules/ngx_stream_module.so
peers_open() {
	local folder=${PEERS:-${XDG_CACHE_HOME:-$HOME/.cache}/poise-bench/peers} root libraries loader
	if [[ $folder == host ]] || ! scripts/bench/peers.sh "$folder"; then
		say 'the peers are those of this machine: see the versions below the table'
		scripts/deps.sh peers
		return 0
	fi
	root=$folder/root
	libraries=$root/usr/lib/$(uname -m)-linux-gnu
	loader=$(compgen -G "$libraries/ld-linux-*.so.*" | head -n 1)
	haproxy=("$loader" --library-path "$libraries" "$root/usr/sbin/haproxy")
	nginx=("$loader" --library-path "$libraries" "$root/usr/sbin/nginx")
	stream_module=$root/usr/lib/nginx/modules/ngx_stream_module.so
	export OPENSSL_CONF=$root/etc/ssl/openssl.cnf
}
run_haproxy() { "${haproxy[@]}" "$@"; }
run_nginx() { "${nginx[@]}" "$@"; }

# start_proxy NAME WORKERS WORKLOAD sets proxy to the process, 0 if there is none,
# and proxy_name, host, port: where clients find Redis. It is known to forward to
# our Redis when this returns. A fresh process for every measurement: none
# inherits the heap of the one before.
start_proxy() {
	local name=$1 workers=$2 workload=$3
	proxy=0 proxy_name=$name
	case $name in
	direct) started=$redis ;;
	haproxy)
		haproxy_config "$workers" "$workload" >"$work/haproxy.cfg"
		start_held haproxy.log "${haproxy[@]}" -db -f "$work/haproxy.cfg"
		;;
	nginx)
		nginx_config "$workers" "$workload" >"$work/nginx.conf"
		start_held nginx.log "${nginx[@]}" -e stderr -p "$work" -c "$work/nginx.conf"
		;;
	poise)
		poise_config "$workers" "$workload" >"$work/poise.yaml"
		start_held poise.log "$poise" run -c "$work/poise.yaml"
		;;
	floor)
		mapfile -t floor_command < <(floor_command "$workload")
		start_held floor.log "${floor_command[@]}"
		;;
	esac
	[[ $name == direct ]] || proxy=$started
	port=$(target redis)
	host=${port%:*} port=${port##*:}
	answers "$host" "$port" "$started" &&
		[[ $(timeout 2 redis-cli -h "$host" -p "$port" get bench-token) == "$token" ]]
}

# start_held LOG COMMAND...: below the quota of the workload, on the proxy's cores.
start_held() {
	held=$quota_group
	start "$1" "$proxy_cpus" "${@:2}"
	held=''
}

# floor_command WORKLOAD: the program that does this work, and what stands before what,
# a word a line.
floor_command() {
	local name protocol program=stream
	case $1 in
	bulk) program=bulk ;;
	udp | udp-oneway | dns) program=udp ;;
	esac
	echo "$work/floor-$program"
	while read -r name protocol; do
		[[ $program != udp || $protocol == udp ]] || continue
		printf '%s\n' "${front[floor]}:${front_port[$name]}" "$(backend_of "$name" floor)"
	done < <(services_of "$1")
}

# Where TLS ends in the proxy, all are made to do the same work: the client
# offers one group, and one cipher for each version, and these take no other.
# The files are made by `loadtool tls-cert`.

haproxy_config() { # WORKERS WORKLOAD
	local name protocol options
	cat <<-EOF
		global
		    nbthread $1
		    maxconn 7000
		    ssl-default-bind-curves X25519
		    ssl-default-bind-ciphersuites TLS_AES_128_GCM_SHA256
		    ssl-default-bind-ciphers ECDHE-ECDSA-AES128-GCM-SHA256
		defaults
		    mode tcp
		    option splice-auto
		    timeout connect 5s
		    timeout client 10m
		    timeout server 10m
	EOF
	while read -r name protocol; do
		options=''
		[[ $protocol != tls ]] || options=" ssl crt $work/both.pem"
		cat <<-EOF
			listen $name
			    bind ${front[haproxy]}:${front_port[$name]}$options
			    server backend $(backend_of "$name" haproxy)
		EOF
	done < <(services_of "$2")
}

# nginx counts a UDP session by its answers if it is told how many there are
# (proxy_responses). It is not told, not even that there is none: it would set
# up a session for every datagram, which takes it twice as long.
nginx_config() { # WORKERS WORKLOAD
	local name protocol options udp=' udp' 
	[[ $1 -eq 1 ]] || udp+=' reuseport' # or a session's datagrams reach several workers
	[[ ! -e $stream_module ]] || echo "load_module $stream_module;"
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
		    ssl_certificate $work/cert.pem;
		    ssl_certificate_key $work/key.pem;
		    ssl_protocols TLSv1.2 TLSv1.3;
		    ssl_ecdh_curve X25519;
		    ssl_ciphers ECDHE-ECDSA-AES128-GCM-SHA256;
		    ssl_conf_command Ciphersuites TLS_AES_128_GCM_SHA256;
	EOF
	while read -r name protocol; do
		case $protocol in
		udp) options=$udp ;;
		tls) options=' ssl' ;;
		*) options='' ;;
		esac
		echo "    server { listen ${front[nginx]}:${front_port[$name]}$options; proxy_pass $(backend_of "$name" nginx); }"
	done < <(services_of "$2")
	echo '}'
}

poise_config() { # WORKERS WORKLOAD
	local name protocol options
	cat <<-EOF
		admin: {socket: "$work/poise.sock", http: ""}
		log: {level: warn, access: none}
		runtime: {workers: $1, drain: 1s}
		services:
	EOF
	while read -r name protocol; do
		case $protocol in
		udp) options=', protocol: udp' ;;
		tls) options=", tls: {certificates: [{cert: \"$work/cert.pem\", key: \"$work/key.pem\"}]}" ;;
		*) options='' ;;
		esac
		echo "  $name: {listen: [\"${front[poise]}:${front_port[$name]}\"], pool: $name$options}"
	done < <(services_of "$2")
	echo 'pools:'
	while read -r name protocol; do
		echo "  $name: {balance: least-conn, backends: [\"$(backend_of "$name" poise)\"], check: {type: none}}"
	done < <(services_of "$2")
}
