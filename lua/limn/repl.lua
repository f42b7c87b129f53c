-- The prompt of `limn`: reads a line, runs it, prints what it gives.
local core = require "limn.core"
local sorted_keys = require "limn.sorted_keys"
local has_ffi, ffi = pcall(require, "ffi")

local repl = {}

-- The editor calls back, and compiled code does not see ctrl-C.
if has_ffi then jit.off(true, true) end

-- -- Completion ------------------------------------------------------------

local keywords = {}
for word in ([[and break do else elseif end false for function if in local nil
    not or repeat return then true until while]]):gmatch "%l+" do
  keywords[word] = true
end

-- The names behind v, its metatables' too.
local function names_of(v)
  local names = {}
  local kind = core.type(v)
  if kind == "tensor" then names.shape, names.dtype, names.device = 1, 1, 1 end
  -- A class whose __index is a function holds its instances' methods.
  local function add(x, depth)
    local mt = debug.getmetatable(x)
    for k in pairs(type(x) == "table" and x or {}) do names[k] = true end
    if type(mt) == "table" and depth < 9 then
      local index = rawget(mt, "__index")
      add(type(index) == "table" and index or index and mt, depth + 1)
    end
  end
  if kind == "tensor" or kind == "cell" then add(core.raw "methods", 0) end
  if kind == "cell" then add(core.raw "cell_methods", 0) end
  add(v, 0)
  return names
end

-- repl.complete("x:su") -> {"x:sub", "x:sum"}: what may stand there.
function repl.complete(text)
  local path, last = text:match "^(.*[.:])([%w_]*)$"
  local names = {}
  if not path then
    for k in pairs(keywords) do names[k] = true end
    for k in pairs(_G) do names[k] = true end
    path, last = "", text
  else
    local v = _G
    for name in path:gmatch "[^.:]+" do
      local ok, inner = pcall(function() return v[name] end)
      if not ok or inner == nil then return {} end
      v = inner
    end
    names = names_of(v)
  end
  local found = {}
  for _, name in ipairs(sorted_keys(names)) do
    if type(name) == "string" and name:find "^[%a_][%w_]*$"
      and name:sub(1, #last) == last
      and (last ~= "" or name:sub(1, 1) ~= "_") then
      found[#found + 1] = path .. name
    end
  end
  return found
end

-- -- Reading lines ---------------------------------------------------------

-- libedit or readline, where one is installed: line editing and history.
local function editor()
  if not has_ffi then return nil end
  pcall(ffi.cdef, [[
    char *readline(const char *);
    int add_history(const char *);
    int read_history(const char *);
    int write_history(const char *);
    char *(*rl_completion_entry_function)(const char *, int);
    int rl_completion_append_character, rl_catch_signals;
    const char *rl_basic_word_break_characters;
    void free(void *);
    char *strdup(const char *);
    void (*signal(int, void (*)(int)))(int);
    int siginterrupt(int, int);
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

local breaks = " \t\n\"\\'><=;|&{}()[]+-*/%^#~,"

-- The tab key; what is made here stays as long as the process.
local function bind_tab(lib)
  local list
  local function entry(text, state)
    if state == 0 then list = repl.complete(ffi.string(text)) end
    local s = list[state + 1]
    return s and ffi.C.strdup(s) or nil
  end
  repl.entry = ffi.cast("char *(*)(const char *, int)", function(text, state)
    local ok, s = pcall(entry, text, state)
    return ok and s or nil
  end)
  repl.breaks = ffi.new("char[?]", #breaks + 1, breaks)
  lib.rl_completion_entry_function = repl.entry
  lib.rl_completion_append_character = 0
  lib.rl_basic_word_break_characters = repl.breaks
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
  pcall(function() lib.rl_catch_signals = 0 end) -- before all else
  pcall(function() lib.read_history(history) end)
  pcall(bind_tab, lib)
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

-- A function that lets ctrl-C raise an error once more: luajit's own handler
-- does so once, then leaves the next one to the system, which ends the process.
-- To be called before a driver is opened, which may put its own in the place.
local function interrupts()
  local SIGINT = 2
  local ok, handler = pcall(function()
    local old = ffi.C.signal(SIGINT, nil)
    ffi.C.signal(SIGINT, old)
    return old
  end)
  return function(reading)
    if not ok then return end
    ffi.C.signal(SIGINT, handler)
    if reading then ffi.C.siginterrupt(SIGINT, 1) end -- or it reads on
  end
end

-- -- Showing values --------------------------------------------------------

local widest, deepest, most = 72, 3, 60 -- columns, tables, entries

local function named(v)
  local mt = getmetatable(v)
  return type(mt) == "table" and mt.__tostring
end

local function show(v, depth, seen)
  if type(v) == "string" then return string.format("%q", v) end
  if type(v) ~= "table" or named(v) then return tostring(v) end
  if seen[v] or depth == deepest then return "{...}" end
  seen[v] = true
  local parts, width, keys = {}, 0, sorted_keys(v)
  for i, k in ipairs(keys) do
    if i > most then
      parts[i] = ("... %d more"):format(#keys - most)
      width = widest
      break
    end
    local name = type(k) == "number" and k == i and ""
      or type(k) == "string" and k:find "^[%a_][%w_]*$" and k .. " = "
      or "[" .. (type(k) == "string" and ("%q"):format(k) or tostring(k))
        .. "] = "
    parts[i] = name .. show(v[k], depth + 1, seen)
    width = width + #parts[i] + 2
      + (parts[i]:find("\n", 1, true) and widest or 0)
  end
  seen[v] = nil
  local inner = ("  "):rep(depth + 1)
  if width < widest then return "{" .. table.concat(parts, ", ") .. "}" end
  return "{\n" .. inner .. table.concat(parts, ",\n" .. inner) .. "\n"
    .. ("  "):rep(depth) .. "}"
end

-- repl.show(v) -> string: v as the prompt prints it.
function repl.show(v) return show(v, 0, {}) end

local function print_all(...)
  for i = 1, select("#", ...) do print(repl.show((select(i, ...)))) end
end

-- -- Running ---------------------------------------------------------------

local function values(...) return ... end

-- Compile as an expression first, as an argument so that its frame is there
-- when an error asks for the line. `incomplete` asks for another line.
local function compile(text)
  if loadstring("return " .. text, "=stdin") then
    local f = loadstring("return (...)(" .. text .. ")", "=stdin")
      or loadstring("return (...)(" .. text .. "\n)", "=stdin") -- a comment
    if f then return f end
  end
  local g, message = loadstring(text, "=stdin")
  local _, other = loadstring("return " .. text, "=stdin") -- as in `1 +`
  local rest = "near '<eof>'$"
  return g, message, message and other and (message:find(rest)
    or other:find(rest)) ~= nil
end

-- An error's message and the user's frames, without those of this file.
local function explain(e)
  if type(e) ~= "string" then
    return "error: " .. (type(e) == "table" and repl.show(e) or tostring(e))
  end
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

-- A whole statement or expression: its text, nil at the end of the input, and
-- what compile made of it.
local function statement(read)
  local text = read "> "
  if text == nil then return nil end
  text = text:gsub("^%s*=", "")
  if not text:find "%S" then return text end
  local f, message, incomplete = compile(text)
  while incomplete do
    local more = read ">> "
    if more == nil then break end
    text = text .. "\n" .. more
    f, message, incomplete = compile(text)
  end
  return text, f, message
end

-- Read, run and print until the end of the input.
function repl.run()
  local read, keep = reader()
  local arm = interrupts()
  local limn = require "limn"
  local env = _G
  env.limn, env.nn = limn, limn.nn
  env.optim, env.data = limn.optim, limn.data
  print(limn._VERSION .. " on " .. table.concat(limn.devices(), ", ")
    .. '; limn, nn, optim and data are loaded, limn.help "conv2d" explains,\n'
    .. "the tab key completes, ctrl-C stops, ctrl-D leaves")
  while true do
    arm(true)
    local ok, text, f, message = pcall(statement, read)
    if not ok then -- ctrl-C: what has been typed is forgotten
      io.stderr:write "\n"
    elseif text == nil then
      break
    elseif f or message then
      keep(text)
      if f then
        arm()
        finish(xpcall(function() return f(values) end, explain))
      else
        io.stderr:write(message, "\n")
      end
    end
  end
  print()
end

return repl
