#!/bin/sh
# Write OUT: the named text files as C arrays limn_k_<name>, for core/gpu.c.
# usage: sh kernels/embed.sh OUT FILES...
# Bytes are written as numbers: a C compiler need not take long strings.
set -e
out=$1
shift
mkdir -p "$(dirname "$out")"
{
  echo "/* Made by kernels/embed.sh: do not edit. */"
  for f in "$@"; do
    name=$(basename "$f" | sed 's/\.[a-z]*$//; s/[^A-Za-z0-9]/_/g')
    echo "static const char limn_k_$name[] = {"
    od -An -v -tu1 "$f" | awk '{
      line = ""
      for (i = 1; i <= NF; i++) line = line $i ","
      print line
    } END { print "0};" }'
  done
} >"$out.tmp"
mv "$out.tmp" "$out"
