#!/usr/bin/env bash
# Brings the newest HAProxy and nginx that Debian has, whatever this machine's own
# release is, into a folder, with every library they need:
#
#   scripts/bench/peers.sh FOLDER     prints nothing; exit status 1: not to be had here
#
# Nothing is installed and nothing needs root: apt resolves against an empty
# system and only downloads, dpkg-deb unpacks, no package's script runs. The
# programs are started by the folder's own loader (scripts/bench/proxies.sh), so
# that they use their own C library and their own OpenSSL. A folder that is
# complete is used as it is; delete it to have it made again.
set -euo pipefail

folder=$(realpath -m "${1:?usage: peers.sh FOLDER}")
suite=${PEERS_SUITE:-trixie}
mirror=${PEERS_MIRROR:-http://deb.debian.org/debian}
keyring=/usr/share/keyrings/debian-archive-keyring.gpg

[[ ! -e $folder/complete || $(<"$folder/complete") != "$suite" ]] || exit 0
fail() { echo "peers.sh: $*" >&2 && exit 1; }
command -v apt-get >/dev/null || fail 'no apt-get here'
[[ -e $keyring ]] || fail "no $keyring (package debian-archive-keyring)"

rm -rf "$folder"
mkdir -p "$folder"/apt/{lists/partial,cache/archives/partial,etc}
state=$folder/apt
: >"$state/status"
: >"$state/apt.conf"
echo "deb [signed-by=$keyring] $mirror $suite main" >"$state/etc/sources.list"

# An apt of its own: no setting, list, key or package of this machine's is read.
own_apt() {
	APT_CONFIG="$state/apt.conf" apt-get -qq \
		-o Dir::Etc="$state/etc" -o Dir::Etc::sourcelist="$state/etc/sources.list" -o Dir::Etc::sourceparts=- \
		-o Dir::Etc::preferencesparts=- -o Dir::State="$state" -o Dir::State::lists="$state/lists" \
		-o Dir::State::status="$state/status" -o Dir::Cache="$state/cache" -o APT::Architecture="$(dpkg --print-architecture)" \
		-o APT::Sandbox::User="$(id -un)" -o Debug::NoLocking=1 -o APT::Install-Recommends=0 "$@"
}
own_apt update >&2 || fail "cannot read $mirror $suite"
own_apt -y --download-only install haproxy nginx-light libnginx-mod-stream >"$state/log" 2>&1 ||
	fail "$(tail -n 1 "$state/log")"

mkdir "$folder/root"
for package in "$state"/cache/archives/*.deb; do
	dpkg-deb --extract "$package" "$folder/root"
done
rm -rf "$state"
echo "$suite" >"$folder/complete"
