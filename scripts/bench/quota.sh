# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154 # scripts/bench.sh and its parts share variables
# Holds a proxy to a part of its cores. Read by scripts/bench.sh.
#
# On few cores the load and the backend need as much CPU as the proxy. A faster proxy
# then waits for them more often, sleeps and wakes more, and seems slower than it is.
# Held to half a core it is the limit, and the rate is its own. The kernel does the
# holding, over 5 ms at a time (the CPU controller of control groups, version 1 or 2).

QUOTA=${QUOTA:-50}
[[ $QUOTA =~ ^[0-9]+$ && $QUOTA -le 100 ]] || die "QUOTA: $QUOTA is no percentage"
quota_period=5000 # µs
quota_group='' quota_folder='' quota_version=0 quota_part=1

# quota_open makes the group, or says why rates will be the load's.
quota_open() {
	local root
	[[ $QUOTA -gt 0 ]] || return 0
	if root=$(awk '$3 == "cgroup" && $4 ~ /(^|,)cpu(,|$)/ { print $2; exit }' /proc/mounts) && [[ $root ]]; then
		quota_version=1
	elif root=$(awk '$3 == "cgroup2" { print $2; exit }' /proc/mounts) && [[ $root ]] &&
		grep -qw cpu "$root/cgroup.controllers" 2>/dev/null; then
		quota_version=2
		echo +cpu >"$root/cgroup.subtree_control" 2>/dev/null || true
	fi
	quota_folder=$root/poise-bench-$$
	if [[ $quota_version -eq 0 ]] || ! mkdir "$quota_folder" 2>/dev/null; then
		quota_version=0 quota_folder=''
		say 'no control group for the CPU can be made here (root?): rates are as much the load'\''s as the proxies'\''; judge by CPU'
	fi
}

# quota_set WORKERS WORKLOAD sets what the next proxy is held to: nothing where a rate
# is not what is counted.
quota_set() {
	local runtime=$((quota_period * QUOTA * $1 / 100))
	quota_group='' quota_part=1
	[[ $quota_folder ]] || return 0
	case $2 in
	idle | latency | tls-first) return 0 ;;
	esac
	case $quota_version in
	1)
		echo "$quota_period" >"$quota_folder/cpu.cfs_period_us"
		echo "$runtime" >"$quota_folder/cpu.cfs_quota_us"
		;;
	2) echo "$runtime $quota_period" >"$quota_folder/cpu.max" ;;
	esac
	quota_group=$quota_folder
	quota_part=$(awk -v q="$QUOTA" 'BEGIN { print q / 100 }')
}

quota_close() { [[ -z $quota_folder ]] || rmdir "$quota_folder" 2>/dev/null || true; }

quota_words() {
	if [[ $quota_folder ]]; then
		echo "each proxy held to $QUOTA % of a core per worker in the rows of rates"
	else
		echo 'no quota: rates are as much the load'\''s as the proxies'\'''
	fi
}
