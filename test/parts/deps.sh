#!/bin/sh
# Installs the Debian packages that are needed to build and run the test parts,
# if they are missing. For test machines: CI and `make test`.
set -eu
missing=
need() { # need PACKAGE FILE-OR-PROGRAM
	case $2 in
	/*) [ -e "$2" ] ;;
	*) command -v "$2" >/dev/null 2>&1 || [ -x "/usr/sbin/$2" ] ;;
	esac || missing="$missing $1"
}
need gcc gcc
need libc6-dev /usr/include/stdio.h
need pkg-config pkg-config
need libseccomp-dev /usr/include/seccomp.h
need iptables iptables
need e2fsprogs mkfs.ext4
[ -n "$missing" ] || exit 0
echo "installing Debian packages:$missing"
[ "$(id -u)" = 0 ] || { echo "not root: run apt-get install$missing" >&2; exit 1; }
export DEBIAN_FRONTEND=noninteractive
apt-get -qq update
# shellcheck disable=SC2086
apt-get -qq install --yes --no-install-recommends $missing >/dev/null
