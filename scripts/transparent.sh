#!/usr/bin/env bash
# The routing that pools with `source: client` need on the balancer. Backends see
# the clients' own addresses, and answer to them; this has the answers delivered
# here instead of forwarded. `poise check --explain` prints the same for the
# backends of a configuration.
#
#   transparent.sh print|up|down [--mark N] [--table N] [--backends PREFIX...]
#
#   print   says what `up` does: a script of its own
#   up      does it, as root; may be repeated, also with other backends
#   down    undoes it; takes the mark and the table that `up` was given
#
#   --mark N        bits of the packet mark to use, which nobody else does (0x200000)
#   --table N       routing table to use, which nobody else does (7700)
#   --backends ...  only what comes from these addresses and prefixes; without it,
#                   whatever comes for a transparent socket
#
# Backends must send what is for clients through this host: it is their default
# route, or that to the clients. A client in the network of the backends cannot be
# served this way, since they answer to it directly.
set -euo pipefail

usage() {
	echo "transparent.sh: $1" >&2
	echo 'usage: transparent.sh print|up|down [--mark N] [--table N] [--backends PREFIX...]' >&2
	exit 2
}

# number NAME TEXT LOW HIGH
number() {
	if ! [[ $2 =~ ^(0[xX][0-9a-fA-F]{1,8}|[1-9][0-9]{0,9})$ ]] || (($2 < $3 || $2 > $4)); then
		usage "$1 is $2, which is no number from $3 to $4"
	fi
}

joined() {
	local IFS=,
	local list="$*"
	echo "${list//,/, }"
}

# mark [MATCH]: a rule that marks what is for a transparent socket.
mark() {
	echo "    ${1-}meta l4proto { tcp, udp } socket transparent 1 meta mark set meta mark or $mark accept"
}

# route FAMILY DESTINATION: what is marked is for this host, whatever its address.
route() {
	cat <<END
ip $1 route replace local $2 dev lo table $table
ip $1 rule show fwmark $mark/$mark table $table | grep -q . ||
  ip $1 rule add fwmark $mark/$mark table $table
END
}

print() {
	local v4=() v6=() b
	for b in ${backends[@]+"${backends[@]}"}; do
		if [[ $b == *:* ]]; then v6+=("$b"); else v4+=("$b"); fi
	done
	[[ ${#v6[@]} -gt 0 && ${#v4[@]} -eq 0 ]] || route -4 0.0.0.0/0
	[[ ${#v4[@]} -gt 0 && ${#v6[@]} -eq 0 ]] || route -6 ::/0
	cat <<'END'
nft -f - <<'RULES'
table inet poise_transparent
delete table inet poise_transparent
table inet poise_transparent {
  chain divert {
    type filter hook prerouting priority mangle; policy accept;
END
	[[ ${#v4[@]} -eq 0 ]] || mark "ip saddr { $(joined "${v4[@]}") } "
	[[ ${#v6[@]} -eq 0 ]] || mark "ip6 saddr { $(joined "${v6[@]}") } "
	[[ ${#backends[@]} -gt 0 ]] || mark
	cat <<'END'
  }
}
RULES
END
}

down() {
	nft -f - <<-'END'
		table inet poise_transparent
		delete table inet poise_transparent
	END
	local family
	for family in -4 -6; do
		while ip "$family" rule del fwmark "$mark/$mark" table "$table" 2>/dev/null; do :; done
	done
	ip -4 route del local 0.0.0.0/0 dev lo table "$table" 2>/dev/null || true
	ip -6 route del local ::/0 dev lo table "$table" 2>/dev/null || true
}

mark=0x200000 table=7700 backends=()
case ${1-} in
print | up | down) command=$1 && shift ;;
-h | --help)
	sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"
	exit
	;;
*) usage 'say print, up or down' ;;
esac
while [[ $# -gt 0 ]]; do
	case $1 in
	--mark)
		number --mark "${2-}" 1 0xffffffff
		mark=$(printf '0x%x' "$2")
		shift 2
		;;
	--table)
		number --table "${2-}" 1 0xffffffff
		((${2} < 253 || ${2} > 255)) || usage "table $2 is one of the system's"
		table=$(($2))
		shift 2
		;;
	--backends)
		shift
		[[ $# -gt 0 && $1 != --* ]] || usage '--backends without any'
		while [[ $# -gt 0 && $1 != --* ]]; do
			[[ $1 =~ ^[0-9a-fA-F.:]+(/[0-9]+)?$ ]] || usage "$1 is neither an address nor a prefix"
			backends+=("$1")
			shift
		done
		;;
	*) usage "what is $1?" ;;
	esac
done

case $command in
print) print ;;
up) print | bash -euo pipefail ;;
down) down ;;
esac
