#!/usr/bin/env bash
# Validates every file under configs/ with the program that will read it:
#   check-configs.sh POISE
# A file of a kind nobody here knows is an error, so that no sample can be added
# unchecked. Units are left out, loudly, where there is no systemd.
set -euo pipefail
poise=$(realpath "${1:?usage: check-configs.sh POISE}")
cd "$(dirname "${BASH_SOURCE[0]}")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# unit FILE: the unit is sound, and its sandbox is as tight as docs/operations.md
# promises (an exposure of 2.0 at most). The binary need not be installed.
unit() {
	sed "s|/usr/bin/poise|$poise|" "$1" >"$work/${1##*/}"
	systemd-analyze verify --man=no "$work/${1##*/}" &&
		systemd-analyze security --offline=true --threshold=20 --no-pager "$work/${1##*/}"
}

# sysctls FILE: "key = value" with keys this kernel has.
sysctls() {
	local line key bad=0
	while IFS= read -r line; do
		[[ $line && $line != [#\;]* ]] || continue
		key=${line%% = *}
		[[ $line == *' = '?* && -e /proc/sys/${key//.//} ]] || { echo "$line" && bad=1; }
	done <"$1"
	return "$bad"
}

failed=0 valid=0
while IFS= read -r file; do
	check=()
	case $file in
	*/README.md) continue ;;
	*/conf.d/*.yaml) continue ;; # read with the file beside its folder
	*.yaml) check=("$poise" check -c "$file") ;;
	configs/sysctl/*.conf) check=(sysctls "$file") ;;
	configs/systemd/*.service)
		if ! command -v systemd-analyze >/dev/null; then
			echo "$file: not checked, systemd-analyze is not installed" >&2
			[[ -z ${POISE_TEST_ALL:-} ]] || failed=1
			continue
		fi
		check=(unit "$file")
		;;
	*)
		echo "$file: check-configs.sh does not know how to check it; add a rule" >&2
		failed=1
		continue
		;;
	esac
	if out=$("${check[@]}" 2>&1); then
		valid=$((valid + 1))
	else
		printf '%s:\n%s\n' "$file" "$out" >&2
		failed=1
	fi
done < <(find configs -type f | sort)

[[ $failed -eq 0 ]] || exit 1
[[ $valid -gt 0 ]] || { echo 'configs: no sample found' >&2 && exit 1; }
echo "configs: $valid valid"
