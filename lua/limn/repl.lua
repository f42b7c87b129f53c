-- The prompt of `limn`: reads a line, runs it, prints what it gives.
local has_ffi, ffi = pcall(require, "ffi")

local repl = {}

-- -- Reading lines ---------------------------------------------------------

-- libedit or readline, where one is installed: line editing and history.
local function editor()
  if not has_ffi then return nil end
  pcall(ffi.cdef, [[
    char *readline(const char *);
    int add_history(const char *);
    int read_history(const char *);
    int write_history(const char *);
    void free(void *);
  ]])
  pcall(ffi.cdef, "int isatty(int);")
  local ok, tty = pcall(function() return ffi.C.isatty(0) end)
  if not ok or tty == 0 then return nil end
  for _, name in ipairs {"libedit.so.2", "libedit.so.0", "libreadline.so.8",
                         "edit", "readline"} do
    local found, lib = pcall(ffi.load, name)
    if found and pcall(function() return lib.readline end) then return lib end
  end
end

-- A function that reads a line (nil at the end), and one that keeps it.
local function reader()
  local lib = editor()
  if not lib then
    return function(prompt)
      io.write(prompt)
      io.flush()
      return io.read()
    end, function() end
  end
  local home = os.getenv "HOME"
  local history = home and home .. "/.limn_history"
  pcall(function() lib.read_history(history) end)
  return function(prompt)
    local p = lib.readline(prompt)
    if p == nil then return nil end
    local s = ffi.string(p)
    ffi.C.free(p)
    return s
  end, function(line)
    pcall(function()
      lib.add_history(line)
      if history then lib.write_history(history) end
    end)
  end
end

-- -- Showing values --------------------------------------------------------

local function show(v, indent, seen)
  if type(v) == "string" then return string.format("%q", v) end
  if type(v) ~= "table" or (getmetatable(v)
      and getmetatable(v).__tostring) then
    return tostring(v)
  elseif seen[v] or #indent > 8 then
    return "{...}"
  end
  seen[v] = true
  local parts, strings, inner = {}, {}, indent .. "  "
  for i = 1, #v do parts[i] = inner .. show(v[i], inner, seen) end
  for k in pairs(v) do
    if type(k) == "string" then strings[#strings + 1] = k end
  end
  table.sort(strings)
  for _, k in ipairs(strings) do
    parts[#parts + 1] = inner .. k .. " = " .. show(v[k], inner, seen)
  end
  seen[v] = nil
  if #parts == 0 then return "{}" end
  return "{\n" .. table.concat(parts, ",\n") .. "\n" .. indent .. "}"
end

local function print_all(...)
  for i = 1, select("#", ...) do print(show((select(i, ...)), "", {})) end
end

-- -- Running ---------------------------------------------------------------

-- Compile as an expression first. `incomplete` asks for another line.
local function compile(text)
  local f = loadstring("return " .. text, "=stdin")
  if f then return f end
  local g, message = loadstring(text, "=stdin")
  local _, other = loadstring("return " .. text, "=stdin") -- as in `1 +`
  return g, message, message and (message:find "<eof>" or other:find "<eof>")
    ~= nil
end

-- An error's message and the user's frames, without those of this file.
local function explain(e)
  if type(e) ~= "string" then return tostring(e) end
  local lines = {}
  for line in debug.traceback("", 2):gmatch "[^\n]+" do
    if line:find("repl.lua", 1, true) or line:find "xpcall" then break end
    if not line:find "^stack traceback" and not line:find "%[C%]" then
      lines[#lines + 1] = line
    end
  end
  return e .. (#lines > 1 and "\n" .. table.concat(lines, "\n") or "")
end

local function finish(ok, ...)
  if not ok then
    io.stderr:write(tostring((...)), "\n")
  elseif select("#", ...) > 0 then
    -- A value whose text cannot be made is an error like any other.
    local shown, e = pcall(print_all, ...)
    if not shown then io.stderr:write(tostring(e), "\n") end
  end
end

-- Read, run and print until the end of the input.
function repl.run()
  local limn = require "limn"
  local env = _G
  env.limn, env.nn = limn, limn.nn
  env.optim, env.data = limn.optim, limn.data
  print(limn._VERSION .. " on "
        .. table.concat(limn.devices(), ", ")
        .. "; limn, nn, optim and data are loaded, ctrl-D leaves")
  local read, keep = reader()
  while true do
    local text = read "> "
    if text == nil then break end
    if text:find "%S" then
      text = text:gsub("^%s*=", "")
      local f, message, incomplete = compile(text)
      while incomplete do
        local more = read ">> "
        if more == nil then break end
        text = text .. "\n" .. more
        f, message, incomplete = compile(text)
      end
      keep(text)
      if f then
        finish(xpcall(f, explain))
      else
        io.stderr:write(message, "\n")
      end
    end
  end
  print()
end

return repl
