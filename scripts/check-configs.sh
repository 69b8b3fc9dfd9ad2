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

# config FILE: poise check, with the files that the sample names below /etc/poise put
# in place of those that nobody has here.
config() {
	local dir=$work/etc named file variables
	rm -rf "$dir" && mkdir -p "$dir"
	[[ ! -d ${1%/*}/conf.d ]] || cp -r "${1%/*}/conf.d" "$dir/"
	cp "$1" "$dir/"
	find "$dir" -name '*.yaml' -exec sed 's/#.*//' {} + | grep -oE '/etc/poise/[A-Za-z0-9._/-]+' | sort -u >"$work/named" || true
	find "$dir" -name '*.yaml' -exec sed -i "s|/etc/poise/|$dir/|g" {} +
	while IFS= read -r named; do
		file=$dir/${named#/etc/poise/}
		mkdir -p "${file%/*}"
		case $file in
		*.list) : >"$file" ;;
		*/tickets.key) openssl rand -base64 48 >"$file" ;;
		*.key) cp "$work/a.key" "$file" ;;
		*.crt | *.pem) cp "$work/a.crt" "$file" ;;
		*) echo "$named: check-configs.sh does not know what to put there; add a rule" && return 1 ;;
		esac
	done <"$work/named"
	# What a sample takes from the environment is there, whatever it is.
	mapfile -t variables < <(find "$dir" -name '*.yaml' -exec sed 's/#.*//' {} + | grep -oE '\$\{[A-Z_][A-Z0-9_]*\}' | tr -d '{$}' | sort -u)
	env "${variables[@]/%/=sample}" "$poise" check -c "$dir/${1##*/}"
}
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc -days 2 -subj /CN=sample.example.org \
	-addext subjectAltName=DNS:sample.example.org -keyout "$work/a.key" -out "$work/a.crt" 2>/dev/null

# dropin FILE: the unit with this drop-in is sound; what it opens is its purpose.
dropin() {
	mkdir -p "$work/poise.service.d"
	cp "$1" "$work/poise.service.d/"
	sed "s|/usr/bin/poise|$poise|" configs/systemd/poise.service >"$work/poise.service"
	local out
	if ! out=$(systemd-analyze verify --man=no "$work/poise.service" 2>&1) || [[ -n $out ]]; then
		echo "$out"
		return 1
	fi
	rm -r "$work/poise.service.d"
}

# socket FILE: the unit is sound, and so is the service that it is for with it.
socket() {
	cp "$1" "$work/"
	sed "s|/usr/bin/poise|$poise|" configs/systemd/poise.service >"$work/poise.service"
	local out
	if ! out=$(systemd-analyze verify --man=no "$work/${1##*/}" "$work/poise.service" 2>&1) || [[ -n $out ]]; then
		echo "$out"
		return 1
	fi
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
	*.yaml) check=(config "$file") ;;
	configs/sysctl/*.conf) check=(sysctls "$file") ;;
	configs/systemd/*.service | configs/systemd/*.socket | configs/systemd/*.conf)
		if ! command -v systemd-analyze >/dev/null; then
			echo "$file: not checked, systemd-analyze is not installed" >&2
			[[ -z ${POISE_TEST_ALL:-} ]] || failed=1
			continue
		fi
		case $file in
		*.service) check=(unit "$file") ;;
		*.socket) check=(socket "$file") ;;
		*) check=(dropin "$file") ;;
		esac
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
