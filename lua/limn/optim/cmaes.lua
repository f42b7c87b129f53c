-- CMA-ES: a search without gradients, for losses that have none, such as the
-- reward of a game. After Hansen 2016, "The CMA Evolution Strategy: A
-- Tutorial"; `diagonal` is Ros and Hansen 2008, for many parameters.
--
--   local es = optim.CMAES(net, {sigma = 0.3})
--   for _ = 1, 100 do print(es:step(function() return loss(x, t) end)) end
local core = require "limn.core"
local read_options = require "limn.options"
local walk = require "limn.nn.walk"

local limn = require "limn.lazy"

local CMAES = {}
CMAES.__index = CMAES

local sqrt, log, exp = math.sqrt, math.log, math.exp

-- -- Vectors ---------------------------------------------------------------

local function full(n, v)
  local list = {}
  for i = 1, n do list[i] = v end
  return list
end

-- Eigenvalues and vectors (columns of b) of the symmetric c, which is used up:
-- cyclic Jacobi, Golub and Van Loan, Matrix Computations, 8.5.
local function eigen(c, n)
  local b = {}
  for i = 1, n do
    b[i] = full(n, 0)
    b[i][i] = 1
  end
  for _ = 1, 50 do
    local off, all = 0, 0
    for i = 1, n do
      for j = 1, n do
        local v = c[i][j] ^ 2
        all = all + v
        if i ~= j then off = off + v end
      end
    end
    if off <= 1e-28 * all then break end
    for p = 1, n - 1 do
      for q = p + 1, n do
        local apq = c[p][q]
        if apq ~= 0 then
          local tau = (c[q][q] - c[p][p]) / (2 * apq)
          local t = (tau >= 0 and 1 or -1) / (math.abs(tau)
                                              + sqrt(1 + tau * tau))
          local cs = 1 / sqrt(1 + t * t)
          local sn = t * cs
          for k = 1, n do
            local row, kp, kq = c[k], c[k][p], c[k][q]
            row[p], row[q] = cs * kp - sn * kq, sn * kp + cs * kq
          end
          local cp, cq = c[p], c[q]
          for k = 1, n do
            local pk, qk = cp[k], cq[k]
            cp[k], cq[k] = cs * pk - sn * qk, sn * pk + cs * qk
          end
          for k = 1, n do
            local row, kp, kq = b[k], b[k][p], b[k][q]
            row[p], row[q] = cs * kp - sn * kq, sn * kp + cs * kq
          end
        end
      end
    end
  end
  local d = {}
  for i = 1, n do d[i] = sqrt(math.max(c[i][i], 1e-40)) end
  return b, d
end

-- -- Making ----------------------------------------------------------------

local function add(list, seen, v)
  if core.type(v) == "cell" then
    if not v.frozen and not seen[v.id] then
      seen[v.id], list[#list + 1] = true, v
    end
  elseif walk.kind(v) == "table" then
    for i = 1, #v do add(list, seen, v[i]) end
  elseif (type(v) == "table" or type(v) == "userdata")
    and core.type(v) ~= "tensor" and walk.kind(v) ~= "class"
    and v.named_parameters then
    for _, cell in v:named_parameters() do add(list, seen, cell) end
  else
    core.fail("optim.CMAES wants a model, parameters or a list of them, got "
              .. (core.type(v) or type(v)), "optim.CMAES(net, {sigma = 0.3})")
  end
end

-- The paper's constants for n parameters (its table 1, weights above 0 only).
local function constants(n, lambda, diagonal)
  local s = {n = n, lambda = lambda, mu = math.floor(lambda / 2), w = {}}
  local sum, squares = 0, 0
  for i = 1, s.mu do
    s.w[i] = log((lambda + 1) / 2) - log(i)
    sum = sum + s.w[i]
  end
  for i = 1, s.mu do
    s.w[i] = s.w[i] / sum
    squares = squares + s.w[i] ^ 2
  end
  local m = 1 / squares
  s.mueff = m
  s.cc = (4 + m / n) / (n + 4 + 2 * m / n)
  s.cs = (m + 2) / (n + m + 5)
  s.c1 = 2 / ((n + 1.3) ^ 2 + m)
  s.cmu = 2 * (m - 2 + 1 / m) / ((n + 2) ^ 2 + m)
  if diagonal then
    s.c1, s.cmu = s.c1 * (n + 2) / 3, s.cmu * (n + 2) / 3
  end
  s.c1 = math.min(s.c1, 0.9)
  s.cmu = math.min(s.cmu, 1 - s.c1)
  s.damps = 1 + 2 * math.max(0, sqrt((m - 1) / (n + 1)) - 1) + s.cs
  s.chi = sqrt(n) * (1 - 1 / (4 * n) + 1 / (21 * n * n))
  return s
end

local function state(self, name, v)
  local c = core.cell("state", limn.tensor(v, "float64"))
  c.name = "cmaes." .. name
  self.cells[name] = c
  self.order[#self.order + 1] = c
end

-- The parameters' values as one list.
local function gather(params)
  local list = {}
  for _, p in ipairs(params) do
    local flat = p:value():reshape({p:numel()}):totable()
    for i = 1, #flat do list[#list + 1] = flat[i] end
  end
  return list
end

local function check(o)
  if type(o.sigma) ~= "number" or o.sigma <= 0 or o.sigma ~= o.sigma then
    core.fail("optim.CMAES: sigma is a number above 0, got "
              .. tostring(o.sigma), "it is about the distance to a solution")
  elseif type(o.population) ~= "number" or o.population % 1 ~= 0
    or o.population < 4 then
    core.fail("optim.CMAES: population is a whole number of at least 4, got "
              .. tostring(o.population))
  end
end

--- optim.CMAES(net [, {sigma = 0.3, population = 4 + 3 log n, diagonal = n >
-- 100, maximize = false}]): a search without gradients that starts at the
-- parameters' values: es:step(f) calls f with each candidate in the parameters;
-- f gives its loss.
local function new(params, options)
  options = read_options(options, {"sigma", "population", "diagonal",
                                   "maximize"}, "optim.CMAES")
  local self = setmetatable({params = {}, cells = {}, order = {}}, CMAES)
  add(self.params, {}, params)
  local mean = gather(self.params)
  local n = #mean
  if n == 0 then core.fail("optim.CMAES got no parameters") end
  local o = {sigma = 0.3, population = 4 + math.floor(3 * log(n)),
             diagonal = n > 100}
  for k, v in pairs(options) do o[k] = v end
  check(o)
  self.o, self.k = o, constants(n, o.population, o.diagonal)
  state(self, "mean", mean)
  state(self, "sigma", o.sigma)
  state(self, "t", 0)
  state(self, "path_sigma", full(n, 0))
  state(self, "path_c", full(n, 0))
  local c = full(n, 1) -- the covariance: its diagonal, or its rows
  if not o.diagonal then
    for i = 1, n do
      c[i] = full(n, 0)
      c[i][i] = 1
    end
  end
  state(self, "covariance", c)
  return self
end

-- -- A step ----------------------------------------------------------------

-- Give the parameters the values of a list.
local function put(self, x)
  local at = 0
  for _, p in ipairs(self.params) do
    local part, n = {}, p:numel()
    for i = 1, n do part[i] = x[at + i] end
    at = at + n
    p:assign(limn.tensor(part, p.dtype):reshape(p.shape))
  end
end

-- What B D and B D^-1 B' do to a vector, of the covariance B D^2 B'.
local function axes(self)
  local c, n = self.cells.covariance:totable(), self.k.n
  if self.o.diagonal then
    local d = {}
    for i = 1, n do d[i] = sqrt(math.max(c[i], 1e-40)) end
    return function(z)
      local y = {}
      for i = 1, n do y[i] = d[i] * z[i] end
      return y
    end, function(y)
      local z = {}
      for i = 1, n do z[i] = y[i] / d[i] end
      return z
    end
  end
  local b, d = eigen(c, n)
  return function(z)
    local y = {}
    for i = 1, n do
      local v, row = 0, b[i]
      for j = 1, n do v = v + row[j] * d[j] * z[j] end
      y[i] = v
    end
    return y
  end, function(y)
    local u, z = full(n, 0), {}
    for i = 1, n do
      local row = b[i]
      for j = 1, n do u[j] = u[j] + row[j] * y[i] / d[j] end
    end
    for i = 1, n do
      local v, row = 0, b[i]
      for j = 1, n do v = v + row[j] * u[j] end
      z[i] = v
    end
    return z
  end
end

local function loss_of(self, f)
  local v = f()
  if core.type(v) == "tensor" then v = v:item() end
  if type(v) ~= "number" then
    core.fail("es:step: the function gives a " .. (core.type(v) or type(v))
              .. ", not a loss", "es:step(function() return loss(x, t) end)")
  end
  if v ~= v then return math.huge end -- NaN is worse than all
  return self.o.maximize and -v or v
end

-- Samples by loss, the best first: {y, loss, at}.
local function sample(self, f, mean, sigma, spread)
  local k, list = self.k, {}
  local z = limn.randn(k.lambda, k.n):totable()
  for s = 1, k.lambda do
    local y, x = spread(z[s]), {}
    for i = 1, k.n do x[i] = mean[i] + sigma * y[i] end
    put(self, x)
    list[s] = {y = y, loss = loss_of(self, f), at = s}
  end
  table.sort(list, function(a, b)
    if a.loss ~= b.loss then return a.loss < b.loss end
    return a.at < b.at
  end)
  return list
end

-- The covariance after a step; `keep` is the old one's weight.
local function covariance(self, list, pc, keep)
  local k, c = self.k, self.cells.covariance:totable()
  local function mix(old, i, j)
    local v = keep * old + k.c1 * pc[i] * pc[j]
    for s = 1, k.mu do
      local y = list[s].y
      v = v + k.cmu * k.w[s] * y[i] * y[j]
    end
    return v
  end
  for i = 1, k.n do
    if self.o.diagonal then
      c[i] = mix(c[i], i, i)
    else
      for j = 1, i do
        c[i][j] = mix(c[i][j], i, j)
        c[j][i] = c[i][j]
      end
    end
  end
  self.cells.covariance:assign(limn.tensor(c, "float64"))
end

local function learn(self, list, mean, sigma, whiten)
  local k, cells = self.k, self.cells
  local ps, pc = cells.path_sigma:totable(), cells.path_c:totable()
  local t, yw = cells.t:item() + 1, {}
  for i = 1, k.n do
    local v = 0
    for s = 1, k.mu do v = v + k.w[s] * list[s].y[i] end
    yw[i] = v
    mean[i] = mean[i] + sigma * v
  end
  local white, length = whiten(yw), 0
  for i = 1, k.n do
    ps[i] = (1 - k.cs) * ps[i] + sqrt(k.cs * (2 - k.cs) * k.mueff) * white[i]
    length = length + ps[i] ^ 2
  end
  -- A path that grows too fast must not stretch the covariance.
  local calm = length / k.n / (1 - (1 - k.cs) ^ (2 * t)) < 2 + 4 / (k.n + 1)
  for i = 1, k.n do
    pc[i] = (1 - k.cc) * pc[i]
      + (calm and sqrt(k.cc * (2 - k.cc) * k.mueff) * yw[i] or 0)
  end
  covariance(self, list, pc, 1 - k.c1 - k.cmu
             + (calm and 0 or k.c1 * k.cc * (2 - k.cc)))
  cells.mean:assign(limn.tensor(mean, "float64"))
  cells.path_sigma:assign(limn.tensor(ps, "float64"))
  cells.path_c:assign(limn.tensor(pc, "float64"))
  cells.sigma:assign(sigma * exp(math.min(1,
    k.cs / k.damps * (sqrt(length) / k.chi - 1))))
  cells.t:assign(t)
end

-- One generation: f() is called with the parameters at each of the samples and
-- gives their loss. Then they are at the new mean. Returns the best loss seen
-- in this generation, and the samples' mean loss.
function CMAES:step(f)
  if core.tracing() then
    core.fail("CMAES:step cannot be traced", "trace or jit what it calls")
  elseif type(f) ~= "function" and not (type(f) == "table"
                                        and getmetatable(f)) then
    core.fail("es:step wants a function that gives the loss, got "
              .. (core.type(f) or type(f)),
              "es:step(function() return loss(x, t) end)")
  end
  local mean, sigma = self.cells.mean:totable(), self.cells.sigma:item()
  local spread, whiten = axes(self)
  local ok, list = pcall(sample, self, f, mean, sigma, spread)
  if not ok then
    put(self, mean)
    error(list, 0)
  end
  local sum = 0
  for _, s in ipairs(list) do sum = sum + s.loss end
  learn(self, list, mean, sigma, whiten)
  put(self, mean)
  local sign = self.o.maximize and -1 or 1
  return sign * list[1].loss, sign * sum / #list
end

-- The step size now.
function CMAES:sigma() return (self.cells.sigma:item()) end

-- for path, cell in es:named_cells() do: the state, as a file stores it.
function CMAES:named_cells()
  local list = {}
  for i, c in ipairs(self.order) do list[i] = {c.name, c, self} end
  return walk.each(list)
end

function CMAES:__tostring()
  return ("CMAES of %d numbers {sigma = %.4g, population = %d%s}"):format(
    self.k.n, self:sigma(), self.k.lambda,
    self.o.diagonal and ", diagonal" or "")
end

return new
