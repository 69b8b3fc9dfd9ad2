#!/usr/bin/env bash
# A commit of more than 50 changed lines of source needs a body; CONTRIBUTING.md says
# what goes into it.
#   check-log.sh           the commits after the one with which the rule began
#   check-log.sh --self    the rule, on histories made for it
set -euo pipefail

since=4b3122a72e52143a0ed98f3e7a0f16e04aa470be
most=50
source=('*.go' '*.c' '*.h' '*.sh' Makefile '.ci/*' ':!*/testdata/*')

# check SINCE: in the working directory. Where there is no history to look at, in a
# tarball or a shallow clone, it says so and is content.
check() {
	local commit changed bad=0 n=0
	if ! git rev-parse --git-dir >/dev/null 2>&1; then
		echo 'log: not checked, no repository that git can read is here'
		return 0
	fi
	if ! git merge-base --is-ancestor "$1" HEAD 2>/dev/null; then
		echo "log: not checked, ${1:0:12} is not in this history (a shallow clone?)"
		return 0
	fi
	while IFS= read -r commit; do
		n=$((n + 1))
		changed=$(git show --format= --numstat --no-renames "$commit" -- "${source[@]}" | awk '{ n += $1 + $2 } END { print n + 0 }')
		[[ $changed -gt $most ]] || continue
		# Lines such as Signed-off-by say nothing about the change.
		if [[ -z $(git show -s --format=%b "$commit" | sed -E '/^[A-Z][A-Za-z]*(-[A-Za-z]+)+: /d' | tr -d '[:space:]') ]]; then
			echo "log: $(git show -s --format='%h %s' "$commit"): $changed changed lines of source and no body; say why, what else was tried, and numbers" >&2
			bad=1
		fi
	done < <(git rev-list --no-merges "$1..HEAD")
	[[ $bad -eq 0 ]] || return 1
	echo "log: $n commits since ${1:0:12} say what they have to"
}

# self runs the rule over histories made for it.
self() {
	local failed=0 base
	work=$(mktemp -d)
	trap 'rm -rf "$work"' EXIT
	export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1
	export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@example.org GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@example.org
	unset GIT_DIR GIT_WORK_TREE GIT_INDEX_FILE
	git init -q "$work/full"
	cd "$work/full"
	# commit MESSAGE FILE LINES: a commit that adds so many lines.
	commit() {
		mkdir -p "$(dirname "$2")"
		seq "$3" >>"$2"
		git add "$2"
		git commit -qm "$1"
	}
	# expect STATUS WHAT SINCE: the result of check.
	expect() {
		local got=0
		check "$3" >"$work/out" 2>&1 || got=$?
		if [[ $got -ne $1 ]]; then
			echo "check-log: $2: status $got, want $1: $(cat "$work/out")" >&2
			failed=1
		fi
	}
	commit 'before the rule' old.go 500
	base=$(git rev-parse HEAD)
	expect 0 'nothing since' "$base"
	commit 'at the limit' a.go 50
	commit 'documentation' a.md 500
	commit 'test data' p/testdata/a.go 500
	commit $'with a body\n\nBecause.' b.go 51
	expect 0 'commits that need no body, or have one' "$base"
	commit 'no body' c.go 51
	expect 1 'no body' "$base"
	grep -q '51 changed lines' "$work/out" || { echo "check-log: says $(cat "$work/out")" >&2 && failed=1; }
	base=$(git rev-parse HEAD)
	commit $'trailers alone\n\nSigned-off-by: A <a@example.org>' d.sh 51
	expect 1 'trailers alone' "$base"
	base=$(git rev-parse HEAD)
	git rm -q c.go
	git commit -qm 'removed'
	expect 1 'lines that go' "$base"
	base=$(git rev-parse HEAD)
	git mv b.go e.go
	git commit -qm 'moved'
	expect 1 'lines that move' "$base"
	commit 'the last' f.go 60
	git clone -q --depth 1 "file://$work/full" "$work/shallow"
	cd "$work/shallow"
	expect 0 'a shallow clone' "$base"
	grep -q 'not checked' "$work/out" || { echo 'check-log: a shallow clone is silent' >&2 && failed=1; }
	rm -rf .git
	GIT_CEILING_DIRECTORIES=$work expect 0 'a tarball' "$base"
	grep -q 'not checked' "$work/out" || { echo 'check-log: a tarball is silent' >&2 && failed=1; }
	[[ $failed -eq 0 ]] || return 1
	echo 'check-log: the rule holds on histories made for it'
}

if [[ ${1:-} == --self ]]; then
	self
else
	cd "$(dirname "${BASH_SOURCE[0]}")/.."
	# A tarball below another repository has no history of its own.
	GIT_CEILING_DIRECTORIES=$(dirname "$PWD") check "$since"
fi
