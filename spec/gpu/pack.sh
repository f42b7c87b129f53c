#!/bin/sh
# Collect what a machine with a GPU may lack and cannot install, on one that has
# it (make deps): sh spec/gpu/pack.sh [FILE]
#
# LuaJIT, busted, OpenBLAS, and the headers of the first and the last. run.sh
# unpacks and uses FILE (gpu-tools.tar.gz) where it finds it in the project's
# folder. Both machines must have processors of one kind, and the other one a C
# library that is no older.
set -eu
cd "$(dirname "$0")/../.."
file=${1:-gpu-tools.tar.gz}
tools=$(mktemp -d)
trap 'rm -rf "$tools"' EXIT
mkdir -p "$tools/bin" "$tools/lib" "$tools/include" "$tools/lua"

cp -L "$(command -v luajit)" "$tools/bin/luajit"
cat > "$tools/bin/busted" <<'END'
#!/bin/sh
exec luajit "$(dirname "$0")/../lua/busted_run.lua" "$@"
END
chmod +x "$tools/bin/busted"
echo 'require "busted.runner" {standalone = false}' \
  > "$tools/lua/busted_run.lua"

# Modules by their roots: Lua files, folders of them, libraries.
luajit - "$tools/lua" <<'END'
local to = arg[1]
local function copy(from, name)
  assert(os.execute(("mkdir -p '%s' && cp -rL '%s' '%s/%s'"):format(
    (to .. "/" .. name):match "^(.*)/", from, to, name)) == 0)
end
local function there(path)
  return os.execute("test -e '" .. path .. "'") == 0
end
for _, root in ipairs {"busted", "cliargs", "dkjson", "luassert", "mediator",
                       "pl", "say", "system", "term"} do
  local path = assert(package.searchpath(root, package.path))
  local base = path:match("^(.*)/" .. root .. "%.lua$")
    or path:match("^(.*)/" .. root .. "/init%.lua$")
  for _, name in ipairs {root, root .. ".lua"} do
    if there(base .. "/" .. name) then copy(base .. "/" .. name, name) end
  end
end
for _, name in ipairs {"lfs", "system.core", "term.core"} do
  copy(assert(package.searchpath(name, package.cpath)),
       name:gsub("%.", "/") .. ".so")
end
END

for lib in $(ldd build/limn/core.so "$tools/bin/luajit" |
    awk '/openblas|gfortran|quadmath|luajit/ && $3 { print $3 }' | sort -u); do
  cp -L "$lib" "$tools/lib/"
done
ln -s libopenblas.so.0 "$tools/lib/libopenblas.so"
cp -L "$(pkg-config --variable=includedir luajit)"/*.h "$tools/include/"
for header in $(echo '#include <cblas.h>' |
    ${CC:-cc} -E $(pkg-config --cflags openblas) - |
    sed -n 's/^# [0-9]* "\(.*\(cblas\|openblas\)[^/]*\.h\)".*/\1/p' | sort -u)
do
  cp -L "$header" "$tools/include/"
done
tar czf "$file" -C "$tools" .
ls -l "$file"
