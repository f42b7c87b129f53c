-- The real NVRTC, where it is installed: it needs no GPU to compile.
local ffi = require "ffi"

local N = {}

ffi.cdef [[
int nvrtcVersion(int *, int *);
int nvrtcCreateProgram(void **, const char *, const char *, int,
                       const char **, const char **);
int nvrtcCompileProgram(void *, int, const char **);
int nvrtcDestroyProgram(void **);
int nvrtcGetProgramLogSize(void *, size_t *);
int nvrtcGetProgramLog(void *, char *);
void *dlopen(const char *, int);
]]

-- LIMN_TEST_NVRTC names it where it lies elsewhere.
local lib
for _, name in ipairs {os.getenv "LIMN_TEST_NVRTC" or "libnvrtc.so.13",
                       "libnvrtc.so.12", "libnvrtc.so",
                       "/usr/local/cuda/lib64/libnvrtc.so"} do
  local ok, found = pcall(ffi.load, name)
  if ok then
    lib = found
    -- It stays until the process ends (RTLD_NOW, RTLD_NODELETE): what it never
    -- frees would look like a leak once nothing points to it.
    ffi.C.dlopen(name, 0x1002)
    break
  end
end
N.found = lib ~= nil
if lib then
  local v = ffi.new "int[2]"
  lib.nvrtcVersion(v, v + 1)
  N.version = ("%d.%d"):format(v[0], v[1])
end

-- What limn compiles for, from the oldest that it supports.
N.targets = {"sm_75", "sm_80", "sm_90", "compute_75"}

-- The compiler's words for a source and a target: "" when all is well.
function N.compile(source, target)
  local p = ffi.new "void *[1]"
  assert(lib.nvrtcCreateProgram(p, source, "limn.cu", 0, nil, nil) == 0)
  local options = {"--gpu-architecture=" .. target, "--fmad=false",
                   "--std=c++17"}
  local argv = ffi.new("const char *[?]", #options, options)
  local code = lib.nvrtcCompileProgram(p[0], #options, argv)
  local n = ffi.new "size_t[1]"
  lib.nvrtcGetProgramLogSize(p[0], n)
  local text = ffi.new("char[?]", n[0] + 1)
  lib.nvrtcGetProgramLog(p[0], text)
  lib.nvrtcDestroyProgram(p)
  local words = ffi.string(text)
  if code ~= 0 and words == "" then words = "error " .. code end
  return words
end

-- The files of a folder, sorted; every part-th of them from `first` on.
function N.sources(folder, first, part)
  local list, mine = {}, {}
  local p = io.popen("ls '" .. folder .. "' 2>/dev/null")
  for name in p:lines() do list[#list + 1] = folder .. "/" .. name end
  p:close()
  for i = first or 1, #list, part or 1 do mine[#mine + 1] = list[i] end
  return mine
end

return N
