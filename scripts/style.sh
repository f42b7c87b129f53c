#!/bin/sh
# The tree's written rules that a script can see: 80 columns, no tabs, no
# space at the end of a line, files under 700 lines.
set -u
bad=0
files=$(find core kernels lua examples spec scripts bin -type f \
  \( -name '*.[chk]' -o -name '*.lua' -o -name '*.sh' -o -name limn \) \
  ! -path 'spec/golden/*')
for f in $files; do
  # The op table is one row a line, whatever its length.
  [ "$f" = core/ops.h ] && continue
  awk -v f="$f" '
    /\t/ { printf "%s:%d: a tab\n", f, FNR; bad = 1 }
    /[ \t]$/ { printf "%s:%d: space at the end of the line\n", f, FNR; bad = 1 }
    length($0) > 80 && !/https?:/ {
      printf "%s:%d: %d columns\n", f, FNR, length($0); bad = 1 }
    END { if (NR > 700) { printf "%s: %d lines\n", f, NR; bad = 1 }
          exit bad }' "$f" || bad=1
done
exit $bad
