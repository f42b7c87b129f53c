#!/bin/sh
# Install what building, running and testing limn needs and is missing here.
# Debian and Ubuntu; does nothing, and needs no network, when all is present.
set -eu

have() { command -v "$1" >/dev/null 2>&1; }

want=""
need() { want="$want $*"; }
have gcc || have clang || need gcc libc6-dev
have make || need make
# The stand-in for CUDA compiles its kernels.
[ "${CUDA:-}" != standin ] || have g++ || need g++
for p in luajit libluajit-5.1-dev libopenblas-dev pkg-config lua-busted \
  lua-check luarocks pocl-opencl-icd ocl-icd-libopencl1 libclblast1; do
  need "$p"
done

if ! have dpkg-query; then
  echo "This is not Debian or Ubuntu: please install the equivalents of" >&2
  echo " $want" >&2
  exit 1
fi

missing=""
for p in $want; do
  status=$(dpkg-query -W -f '${db:Status-Status}' "$p" 2>/dev/null || :)
  [ "$status" = installed ] && continue
  # pkgconf serves as pkg-config, and so may anything else of a name.
  [ "$p" = pkg-config ] && have pkg-config && continue
  missing="$missing $p"
done
[ -n "$missing" ] || exit 0

sudo=""
if [ "$(id -u)" != 0 ]; then
  if ! have sudo; then
    echo "Missing:$missing" >&2
    echo "As root: apt-get install$missing" >&2
    exit 1
  fi
  sudo=sudo
fi
echo "Installing:$missing"
export DEBIAN_FRONTEND=noninteractive
apt() { $sudo env DEBIAN_FRONTEND=noninteractive apt-get -q "$@"; }
# The package lists may be absent, or too old to find their files.
# shellcheck disable=SC2086
apt install -s --no-install-recommends $missing >/dev/null 2>&1 || apt update
# shellcheck disable=SC2086
apt install -y --no-install-recommends $missing || {
  apt update
  # shellcheck disable=SC2086
  apt install -y --no-install-recommends $missing
}
