-- limn.script: control flow of Lua functions as nodes of graphs.
--
-- Parts, in the order in which they work: source.lua finds the text of a
-- function, lexer.lua and parser.lua read it, scope.lua, plain.lua, live.lua
-- and analysis.lua say what is to be rewritten, rewrite.lua does it; and at run
-- time conditions.lua, branches.lua and loops.lua do what the statements did.
local core = require "limn.core"
local analysis = require "limn.script.analysis"
local rewrite = require "limn.script.rewrite"
local source = require "limn.script.source"
local walk = require "limn.nn.walk"
local runtime = {}
for _, part in ipairs {"conditions", "branches", "loops"} do
  for name, f in pairs(require("limn.script." .. part)) do runtime[name] = f end
end

local scripted = setmetatable({}, {__mode = "k"}) -- by the function they give
local cache = setmetatable({}, {__mode = "kv"}) -- by the function they replace

-- A table for the code of one function: its sites, and the runtime.
local function bind(sites)
  return setmetatable(sites, {__index = runtime, __metatable = "limn.script"})
end

-- The upvalues of `to` become those of `from`, by name: both see assignments.
local function join_upvalues(to, from, where)
  local at = {}
  for i = 1, debug.getinfo(from, "u").nups do
    at[debug.getupvalue(from, i)] = i
  end
  for i = 1, debug.getinfo(to, "u").nups do
    local name = debug.getupvalue(to, i)
    if at[name] then
      debug.upvaluejoin(to, i, from, at[name])
    elseif not name:find "^_*limn$" then
      error(where .. ": script: the variable '" .. name .. "' is not among "
        .. "those that the function has", 0)
    end
  end
end

local function compile(f)
  local node, p, info = source.find(f)
  local ok, problem = pcall(analysis.finish, node, p.tokens)
  if not ok then
    if type(problem) ~= "table" then error(problem, 0) end
    error(("%s:%d: script: %s"):format(info.short_src, problem.line,
      problem.message), 0)
  end
  local text, _, sites = rewrite.rewrite(node, p.tokens)
  local chunk, message = loadstring(text, info.source)
  if not chunk then error("script: " .. message, 0) end
  local g = setfenv(chunk, getfenv(f))(bind(sites))
  join_upvalues(g, f, ("%s:%d"):format(info.short_src, info.linedefined))
  return g
end

local function of_function(f)
  if scripted[f] then return f end
  local g = cache[f]
  if not g then
    g = compile(f)
    scripted[g], cache[f] = true, g
  end
  return g
end

-- -- Modules --------------------------------------------------------------

local prefix = debug.getinfo(1, "S").source:gsub("script/init%.lua$", "")

local function users(f) -- a Lua function that is not limn's own
  if type(f) ~= "function" then return false end
  local info = debug.getinfo(f, "S")
  return info.what ~= "C" and info.source:sub(1, #prefix) ~= prefix
end

local twins = setmetatable({}, {__mode = "kv"}) -- by class

-- A class like this one whose methods are scripted; `init` stays as it is.
local function twin_of(class)
  local twin = twins[class]
  if twin then return twin end
  twin = class:extend(class.class_name)
  twins[class], twins[twin] = twin, twin
  local c = class
  while c do
    for name, f in pairs(c) do
      if users(f) and name ~= "init" and not name:find "^__"
        and rawget(twin, name) == nil then
        rawset(twin, name, (of_function(f)))
      end
    end
    c = rawget(c, "super")
  end
  return twin
end

local function of_module(module)
  for _, m in module:named_modules() do
    local twin = twin_of(getmetatable(m))
    if twin ~= getmetatable(m) then setmetatable(m, twin) end
  end
  return module
end

--- limn.script(f) -> function: f with its `if`, `while`, `repeat`, `for`,
-- `and`, `or`, `not` and comparisons recorded as nodes of the graph where they
-- depend on values of a trace; elsewhere they run as plain Lua.
-- limn.script(module) scripts the methods of a module and of those in it, and
-- returns the module; of a class it makes one whose instances are scripted.
return function(f)
  local kind = walk.kind(f)
  if type(f) == "function" then return (of_function(f)) end
  if kind == "module" then return (of_module(f)) end
  if kind == "class" then return (twin_of(f)) end
  core.fail("script: a function or a module is wanted, not "
    .. (f == nil and "nil" or "a " .. (core.type(f) or type(f))),
    type(f) == "table" and "script the function that it calls" or nil)
end
