-- The benchmark: medians and ratios against references in the same run.
-- Prints a table and writes build/bench.json, a list of {name, ratio, limit}:
-- ratio = our time / the reference's, so small is good.
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

-- The engine's cases, through the C API.
local results = {}
local pipe = assert(io.popen(string.format("'%s/engine' '%s'", build, folder)))
local reference -- the hand-written policy net, ns
for line in pipe:lines() do
  local name, ours, ref, limit = line:match "^(.-)\t(.-)\t(.-)\t(.-)$"
  assert(name, line)
  if name:find "^policy" then reference = tonumber(ref) end
  results[#results + 1] = {name = name, ours = tonumber(ours),
                           ref = tonumber(ref), limit = tonumber(limit)}
end
assert(reference, "the engine's benchmark failed")

-- The policy net through Lua.
local x, times = limn.randn(1, 64), {}
for round = 1, 15 do
  local n, t = 20000, os.clock()
  for _ = 1, n do infer(x) end
  times[round] = (os.clock() - t) / n * 1e9
end
table.sort(times)
table.insert(results, 2, {name = "policy net, batch 1, Lua", ours = times[8],
                          ref = reference, limit = 4})

print(string.format("%-42s %12s %12s %7s %7s", "", "ours us", "reference",
                    "ratio", "limit"))
local json = {}
for i, r in ipairs(results) do
  r.ratio = r.ours / r.ref
  print(string.format("%-42s %12.3f %12.3f %7.2f %7.2f %s", r.name,
                      r.ours / 1e3, r.ref / 1e3, r.ratio, r.limit,
                      r.ratio <= r.limit and "" or "OVER"))
  json[i] = string.format('  {"name": "%s", "ratio": %.4f, "limit": %g}',
                          r.name, r.ratio, r.limit)
end
local f = assert(io.open(build .. "/bench.json", "w"))
f:write("[\n", table.concat(json, ",\n"), "\n]\n")
f:close()
