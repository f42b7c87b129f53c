-- The benchmark: medians and ratios against references in the same run.
--   luajit bench/bench.lua BUILD [PYTHON]
-- Prints a table and writes BUILD/bench.json, a list of {name, ratio, limit}:
-- ratio = our time / the reference's, so small is good. With a PYTHON that has
-- torch its times stand beside ours, and `peer` is ours / its best.
local limn = require "limn"
local nn, optim = limn.nn, limn.optim
local build = arg[1] or "build"
local folder = build .. "/bench"
os.execute("mkdir -p '" .. folder .. "'")

local function policy()
  return nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 64),
                       nn.Tanh(), nn.Linear(64, 8))
end

local net = policy()
local infer = limn.trace {net, limn.randn(1, 64), name = "policy"}
limn.save(folder .. "/policy.limn", {policy = infer})

local a, b, c = limn.randn(16), limn.randn(16), limn.randn(16)
local chain = limn.trace {function(x, y, z) return (x * y + z):tanh() * x end,
                          a, b, c, name = "chain"}
limn.save(folder .. "/chain.limn", {chain = chain})

local mlp = nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 256),
                          nn.ReLU(), nn.Linear(256, 10))
local opt = optim.Adam(mlp, {lr = 1e-3})
local loss = limn.value_and_grad(function(x, t)
  return nn.cross_entropy(mlp(x), t)
end, mlp)
local step = limn.trace {function(x, t)
  local l, grads = loss(x, t)
  opt:step(grads)
  return l
end, limn.randn(8, 784), limn.randint(1, 10, {8}, "int64"), name = "step"}
limn.save(folder .. "/mlp.limn", {step = step, net = mlp, opt = opt})

local digits = nn.Sequential(nn.Linear(64, 128), nn.ReLU(),
                             nn.Linear(128, 10))
limn.save(folder .. "/digits.limn",
          {infer = limn.trace {digits, limn.randn(8, 64), name = "infer"}})

dofile(arg[0]:match "(.*/)" .. "layers.lua")(folder)

-- Lines of fields between tabs, the first of which is a name.
local function read(command, f)
  local pipe = assert(io.popen(command))
  for line in pipe:lines() do
    local name, rest = line:match "^([^\t]*)\t(.*)$"
    assert(name, line)
    local fields = {}
    for field in rest:gmatch "[^\t]+" do fields[#fields + 1] = field end
    f(name, fields)
  end
  pipe:close()
end

-- The cases that go through the C API.
local results, by_name = {}, {}
local function add(name, ours, ref, limit)
  local r = {name = name, ours = ours, ref = ref, limit = limit}
  results[#results + 1], by_name[name] = r, r
end
local function run(program)
  read(("'%s/%s' '%s'"):format(build, program, folder), function(name, f)
    add(name, tonumber(f[1]), tonumber(f[2]), tonumber(f[3]))
  end)
end
run "engine"

-- The policy net through Lua, against the one written by hand in C.
local x, times = limn.randn(1, 64), {}
for round = 1, 15 do
  local n, t = 20000, os.clock()
  for _ = 1, n do infer(x) end
  times[round] = (os.clock() - t) / n * 1e9
end
table.sort(times)
local by_hand = assert(by_name["policy net, batch 1, C API"],
                       "the engine's benchmark failed")
add("policy net, batch 1, Lua", times[8], by_hand.ref, 4)
run "layers"

-- Tracing, against what an interactive user does not notice: a model of about
-- 100 nodes, and one guard when a plan is made.
local function seconds(rounds, count, f)
  local best = math.huge
  for _ = 1, rounds do
    local t = os.clock()
    for i = 1, count do f(i) end
    best = math.min(best, (os.clock() - t) / count)
  end
  return best
end
local layers = {}
for i = 1, 10 do
  layers[3 * i - 2], layers[3 * i - 1] = nn.Linear(8, 8), nn.LayerNorm(8)
  layers[3 * i] = nn.Tanh()
end
local deep, one = nn.Sequential(unpack(layers)), limn.ones(1, 8)
add(("trace of %d nodes"):format(limn.trace(deep, one):stats().nodes),
    seconds(5, 20, function() limn.trace(deep, one) end) * 1e9, 5e6, 1)

local function guarded(count)
  local g = limn.trace(function(v)
    local n = v:size(1)
    for i = 1, count do
      if n == -i then return v end
    end
    return v * 2
  end, limn.ones(2))
  local rows = {}
  for i = 1, 400 do rows[i] = limn.ones(i) end
  return seconds(9, 1, function()
    g:forget()
    for i = 1, 400 do g:prepare(rows[i]) end
  end) / 400 * 1e9
end
add("a guard", (guarded(200) - guarded(0)) / 200, 50, 1)

-- What PyTorch takes for the same.
for threads = 1, arg[2] and 2 or 0 do
  local command = "OMP_NUM_THREADS=%d '%s' '%speers.py' %d 2>/dev/null"
  read(command:format(threads, arg[2], arg[0]:match "(.*/)", threads),
       function(name, f)
    local r = by_name[name]
    if not r then return end
    r.peers = f
    for i = 1, #f do
      local ns = tonumber(f[i])
      f[i] = ns and ("%.3f"):format(ns / 1e3) or "-"
      if ns then r.peer = math.max(r.peer or 0, r.ours / ns) end
    end
  end)
end

local row = "%-52s %11s %11s %6s %6s"
local title = row:format("", "ours us", "reference", "ratio", "limit")
if arg[2] then
  title = title .. ("%11s %11s %11s %6s"):format("eager", "traced", "compiled",
                                                 "peer")
end
print(title)
local json = {}
for i, r in ipairs(results) do
  r.ratio = r.ours / r.ref
  local line = row:format(r.name, ("%.3f"):format(r.ours / 1e3),
    ("%.3f"):format(r.ref / 1e3), ("%.2f"):format(r.ratio),
    ("%.2f"):format(r.limit))
  if r.peer then
    line = line .. ("%11s %11s %11s %6.2f"):format(r.peers[1], r.peers[2],
                                                   r.peers[3], r.peer)
  end
  print(line .. (r.ratio <= r.limit and "" or " OVER"))
  json[i] = ('  {"name": "%s", "ratio": %.4f, "limit": %g%s}'):format(r.name,
    r.ratio, r.limit, r.peer and (', "peer": %.4f'):format(r.peer) or "")
end
local f = assert(io.open(build .. "/bench.json", "w"))
f:write("[\n", table.concat(json, ",\n"), "\n]\n")
f:close()
