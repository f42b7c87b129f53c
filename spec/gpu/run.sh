#!/bin/sh
# Build, check and time limn on a machine with a GPU, within eight minutes:
#
#   sh spec/gpu/run.sh [FOLDER [DEVICE]]
#
# What `make test DEVICE=cuda:0` and `make bench DEVICE=cuda:0` do, with the
# spec files side by side. FOLDER (gpu-report) gets a log of each part; the last
# lines are a table. Exits with 0 if all is well. What the machine lacks may lie
# in gpu-tools.tar.gz, which pack.sh makes on another one.
set -u
cd "$(dirname "$0")/../.." || exit 2
if [ -z "${LIMN_GPU_PART:-}" ]; then
  export LUA_PATH="$PWD/lua/?.lua;$PWD/lua/?/init.lua;;"
  export LUA_CPATH="$PWD/build/?.so;;"
  if [ -f gpu-tools.tar.gz ]; then
    tools=$PWD/build/gpu-tools
    mkdir -p "$tools" && tar xzf gpu-tools.tar.gz -C "$tools" || exit 2
    export PATH="$tools/bin:$PATH"
    export LD_LIBRARY_PATH="$tools/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
    export LIBRARY_PATH="$tools/lib" C_INCLUDE_PATH="$tools/include"
    LUA_PATH="$LUA_PATH;$tools/lua/?.lua;$tools/lua/?/init.lua"
    LUA_CPATH="$LUA_CPATH;$tools/lua/?.so"
  fi
fi
out=${1:-gpu-report} device=${2:-cuda:0}
start=$(date +%s) most=480
missing=
for tool in make "${CC:-cc}" luajit timeout; do
  command -v "$tool" > /dev/null || missing="$missing $tool"
done
[ -z "$missing" ] || {
  echo "not installed:$missing (make deps installs what is needed)"
  exit 2
}
mkdir -p "$out/spec" && out=$(cd "$out" && pwd) || exit 2
bad=0 failed=

left() { echo $((most - $(date +%s) + start)); }

# part NAME SECONDS COMMAND...: at most so long, and no longer than is left.
part() {
  name=$1 limit=$2 from=$(date +%s)
  shift 2
  [ "$(left)" -lt "$limit" ] && limit=$(left)
  if [ "$limit" -lt 5 ]; then
    result="no time was left"
    bad=1
  elif timeout "$limit" "$@" > "$out/$name.log" 2>&1; then
    result=$(tail -n 1 "$out/$name.log" | cut -c 1-50)
  else
    result="FAILED, see $name.log"
    bad=1 failed="$failed $name"
  fi
  printf '%-10s %5d s  %s\n' "$name" $(($(date +%s) - from)) "$result" \
    >> "$out/table"
}

export LIMN_DEVICES=cpu,cuda,opencl LIMN_TEST_DEVICE="$device"
# Thousands of files, which are no report.
export LIMN_CACHE="$PWD/build/gpu-cache"
jobs=$(nproc 2>/dev/null || echo 2)

build() {
  make -j"$jobs" all programs && echo "by $(${CC:-cc} --version | head -1)"
}
# The device must be there: nothing else is worth a look without it.
devices() {
  luajit - "$device" <<'END'
local limn = require "limn"
local _, all, notes = limn.devices {all = true}
local found
for _, d in ipairs(all) do
  print(d.name, d.description)
  if d.name == arg[1] then found = d.description end
end
print(notes)
print(found or "there is no " .. arg[1])
os.exit(found and 0 or 1)
END
}
# Each file by itself, several at a time, the large ones first; a line for each
# that fails.
specs() {
  command -v busted > /dev/null || { echo "busted is not installed"; return 1; }
  rm -f "$out"/spec/*.log
  ls -S spec/*_spec.lua | xargs -P $(((jobs + 1) / 2)) -I{} sh -c '
    log=$0/spec/$(basename {} .lua).log
    timeout 270 busted -o plainTerminal {} > "$log" 2>&1 || echo "failed: {}"
  ' "$out"
  cat "$out"/spec/*.log | awk '
    /successes \/ / { good += $1; wrong += $4 + $7 }
    END { printf "%d specs right, %d wrong\n", good, wrong
          exit wrong > 0 || good == 0 }' &&
    [ "$(grep -l 'successes /' "$out"/spec/*.log | wc -l)" -eq \
      "$(ls spec/*_spec.lua | wc -l)" ]
}
# Reads and writes where none should be, in a run that meets most kernels.
# Calls that fail are limn's to report: libraries try some that may.
sanitize() {
  tool=$(command -v compute-sanitizer ||
         echo /usr/local/cuda/bin/compute-sanitizer)
  [ -x "$tool" ] || { echo "compute-sanitizer is not installed"; return 0; }
  "$tool" --error-exitcode 1 --leak-check full --report-api-errors no \
    luajit examples/digits.lua --device "$device" --quick > "$out/memcheck" 2>&1
  status=$?
  cat "$out/memcheck"
  grep -q "Device not supported" "$out/memcheck" || return $status
  echo "compute-sanitizer does not support this device"
}
bench() { make -s bench DEVICE="$device" PEERS=1; }

# Functions are run by a shell of their own, so that timeout can end them.
if [ "${LIMN_GPU_PART:-}" ]; then
  "$LIMN_GPU_PART"
  exit $?
fi
run() {
  name=$1 limit=$2
  LIMN_GPU_PART=$name part "$name" "$limit" sh spec/gpu/run.sh "$out" "$device"
}
: > "$out/table"
{ uname -a; nvidia-smi; luajit -v; nproc; } > "$out/machine.log" 2>&1
run build 120
run devices 30
if [ $bad -eq 0 ]; then
  run bench 100
  run specs 280
  run sanitize 60
  sed -n '/./p' "$out/bench.log"
fi
for name in $failed; do
  echo
  echo "the end of $name.log:"
  tail -n 12 "$out/$name.log"
done
echo
cat "$out/table"
echo "details: $out"
exit $bad
