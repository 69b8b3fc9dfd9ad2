#!/usr/bin/env bash
# Sees to it that the programs the tests drive are installed, or with an argument
# those of the benchmarks: "bench", and "peers" where HAProxy and nginx of this
# machine have to do. By apt where it can, else it says what will be missed. Does
# nothing, quickly, when all are there.
#
# Exit status 1: something is missing and may not be, because POISE_TEST_ALL is
# set or because the benchmarks cannot do without.
set -euo pipefail

# One row a program: the command that proves it is there, its Debian package,
# and what cannot be done without it.
tests=(
	'gcc                 gcc                the race detector'
	'gcc:headers         libc6-dev          the race detector'
	'redis-server        redis-server       tests against a real Redis'
	'redis-benchmark     redis-tools        tests against a real Redis'
	'postgres            postgresql         tests against a real PostgreSQL'
	'psql                postgresql-client  tests against a real PostgreSQL'
	'mariadbd            mariadb-server     tests against a real MariaDB'
	'ip                  iproute2           tests in network namespaces'
	'nft                 nftables           tests that drop packets'
	'ps                  procps             tests that look at processes'
	'setsid              util-linux         a test of exec checks that escape their group'
	'systemd-analyze     systemd            checks of the unit file'
	'knotd               knot               tests against a real DNS server'
	'kdig                knot-dnsutils      tests against a real DNS server'
	'dnsperf             dnsperf            tests against a real DNS server'
	'mosquitto           mosquitto          tests against a real MQTT broker'
	'mosquitto_pub       mosquitto-clients  tests against a real MQTT broker'
	'smtpd               opensmtpd          tests against a real mail server'
	'rsyslogd            rsyslog            tests against a real syslog server'
	'logger              bsdutils           tests against a real syslog server'
	'setpriv             util-linux         a test of what source: client may not do'
	'openssl             openssl            tests against another TLS'
	'haproxy             haproxy            a test of PROXY headers against HAProxy'
)
peers=(
	'haproxy             haproxy            the comparison with HAProxy'
	'nginx               nginx-light        the comparison with nginx'
	'nginx:stream        libnginx-mod-stream the comparison with nginx'
)
bench=(
	'cc                  gcc                the floor that the proxies are compared with'
	'redis-server        redis-server       the connection and message workloads'
	'redis-benchmark     redis-tools        the connection and message workloads'
	'iperf3              iperf3             the bulk workload'
	'knotd               knot               the DNS workload'
	'dnsperf             dnsperf            the DNS workload'
	'jq                  jq                 reading results'
	'taskset             util-linux         pinning to cores'
)

# installed COMMAND: some are files. Debian keeps the database server outside
# PATH, and a compiler without the C library's headers is of no use.
installed() {
	case $1 in
	gcc:headers) [[ -e /usr/include/stdio.h ]] ;;
	mariadbd) [[ -x /usr/sbin/mariadbd ]] || command -v mariadbd >/dev/null ;;
	postgres) compgen -G '/usr/lib/postgresql/*/bin/postgres' >/dev/null || command -v postgres >/dev/null ;;
	nginx:stream)
		[[ -e /usr/lib/nginx/modules/ngx_stream_module.so ]] ||
			nginx -V 2>&1 | grep -q -- '--with-stream\( \|$\)'
		;;
	*) command -v "$1" >/dev/null ;;
	esac
}

# no_services keeps apt from starting the servers it installs: tests start their
# own. invoke-rc.d and deb-systemd-invoke both ask this file; a policy that the
# machine already has stays.
no_services() {
	local policy=/usr/sbin/policy-rc.d
	[[ ! -e $policy ]] || return 0
	printf '#!/bin/sh\nexit 101\n' >"$policy"
	chmod +x "$policy"
	# shellcheck disable=SC2064 # the path is local to this function
	trap "rm -f '$policy'" EXIT
}

apt() {
	no_services
	export DEBIAN_FRONTEND=noninteractive
	apt-get -qq -o DPkg::Lock::Timeout=120 update &&
		apt-get -qq -y -o DPkg::Lock::Timeout=120 --no-install-recommends install "$@" >/dev/null
}

# missing prints the rows whose program is not there.
missing() {
	local row name
	for row in "$@"; do
		read -r name _ <<<"$row"
		installed "$name" || echo "$row"
	done
}

case ${1:-tests} in
tests) rows=("${tests[@]}") ;;
bench) rows=("${bench[@]}") ;;
peers) rows=("${peers[@]}") ;;
esac

mapfile -t absent < <(missing "${rows[@]}")
[[ ${#absent[@]} -gt 0 ]] || exit 0

if [[ $(id -u) -eq 0 ]] && command -v apt-get >/dev/null; then
	packages=()
	for row in "${absent[@]}"; do
		read -r _ package _ <<<"$row"
		packages+=("$package")
	done
	echo "deps: installing ${packages[*]}"
	apt "${packages[@]}" || echo 'deps: apt-get failed' >&2
	mapfile -t absent < <(missing "${rows[@]}")
	[[ ${#absent[@]} -gt 0 ]] || exit 0
fi

for row in "${absent[@]}"; do
	read -r name package without <<<"$row"
	echo "deps: $name is not installed (Debian: apt-get install $package); without it: no $without" >&2
done
[[ -z ${POISE_TEST_ALL:-} && ${1:-tests} == tests ]]
