-- Walking data in batches, shards of it, and splitting it in two.
local core = require "limn.core"
local read_options = require "limn.options"
local progress = require "limn.data.progress"

local limn = require "limn.lazy"

local M = {}

-- The tensors of a call and its options, checked: all have as many rows.
local function arguments(who, allowed, ...)
  local args, n = {...}, select("#", ...)
  local options = {}
  if n > 0 and type(args[n]) == "table" then
    options = read_options(args[n], allowed, who)
    args[n], n = nil, n - 1
  end
  for i = 1, n do
    if core.type(args[i]) ~= "tensor" then
      core.fail(who .. ": argument " .. i .. " is a "
                .. (core.type(args[i]) or type(args[i])) .. ", not a tensor")
    elseif args[i]:size(1) ~= args[1]:size(1) then
      core.fail(who .. ": argument " .. i .. " has " .. args[i]:size(1)
                .. " rows, the first has " .. args[1]:size(1))
    end
  end
  return args, n, options
end

-- -- Order -----------------------------------------------------------------

-- A permutation that depends on nothing but `seed`, so that all processes have
-- the same. Two Lehmer generators (L'Ecuyer 1988) drive a Fisher-Yates shuffle.
local function seeded_order(rows, seed)
  local a, b = seed % 2147483562 + 1, seed % 2147483398 + 1
  local function below(n) -- a whole number from 0 to n - 1
    a = a * 40014 % 2147483563
    b = b * 40692 % 2147483399
    return (a - b) % 2147483562 % n
  end
  for _ = 1, 8 do below(1) end -- near seeds begin alike
  local order = {}
  for i = 1, rows do order[i] = i end
  for i = rows, 2, -1 do
    local j = below(i) + 1
    order[i], order[j] = order[j], order[i]
  end
  return limn.tensor(order, "int64")
end

local function random_order(rows, seed, who)
  if seed == nil then return (limn.randperm(rows)) end
  if type(seed) ~= "number" or seed % 1 ~= 0 then
    core.fail(who .. ": seed is a whole number, got " .. tostring(seed))
  end
  return seeded_order(rows, seed)
end

-- Positions of the rank-th of n shards in `order` (nil: 1, 2, ...). All have
-- equally many: without drop_last the first rows come again at the end.
local function shard(order, rows, o, who)
  local s = o.shard
  local rank, n = type(s) == "table" and s[1], type(s) == "table" and s[2]
  if type(rank) ~= "number" or type(n) ~= "number" or rank % 1 ~= 0
    or n % 1 ~= 0 or rank < 1 or rank > n then
    core.fail(who .. ": shard is {rank, n} with a rank from 1 to n",
              "shard = {1, 4} is the first of four")
  end
  local each = (o.drop_last and math.floor or math.ceil)(rows / n)
  if each == 0 then return limn.tensor({}, "int64"), 0 end
  local at = (limn.arange(0, each - 1, 1, {dtype = "int64"}) * n + (rank - 1))
    % rows + 1
  return order and order[at] or at, each
end

-- -- Batches ---------------------------------------------------------------

local Batches = {}
Batches.__index = Batches

local allowed = {"size", "shuffle", "seed", "shard", "drop_last", "device",
                 "progress", "label"}

--- data.batches(x, t, ... [, {size = 32, shuffle = false, drop_last = false,
-- progress = false, seed, shard, device, label}]): for x, t in
-- data.batches(images, labels, {size = 64}) do. `seed` makes a shuffle that
-- depends on it alone; shard = {rank, n} walks one of n equal parts, which fit
-- together if all shuffle alike (one seed, or the same manual_seed before);
-- device = "opencl:0" uploads, each batch while the one before it is in use;
-- progress is true or "always", `label` stands before the bar. The iterator's
-- `:note(text)` puts text after it, its `n` is the number of batches.
function M.batches(...)
  local args, n, o = arguments("data.batches", allowed, ...)
  local size = o.size or 32
  if type(size) ~= "number" or size < 1 or size % 1 ~= 0 then
    core.fail("data.batches: size is a whole number above 0, got "
              .. tostring(size))
  elseif n == 0 then
    core.fail("data.batches: no tensors given",
              "data.batches(images, labels, {size = 64})")
  elseif o.device ~= nil and type(o.device) ~= "string" then
    core.fail("data.batches: device is a name, got " .. type(o.device))
  end
  if o.device then limn.zeros(0):to(o.device) end -- an unknown name says so
  local rows, order = args[1]:size(1), nil
  if o.shuffle and rows > 0 then
    order = random_order(rows, o.seed, "data.batches")
  end
  if o.shard then order, rows = shard(order, rows, o, "data.batches") end
  local full = math.floor(rows / size)
  local self = setmetatable({
    tensors = args, count = n, rows = rows, size = size, i = 0,
    n = o.drop_last and full or math.ceil(rows / size), order = order,
    device = o.device,
  }, Batches)
  if o.progress then self.bar = progress.progress(self.n, o) end
  return self
end

function Batches:note(text)
  if self.bar then self.bar:note(text) end
end

-- The i-th batch, on the device that was asked for.
local function make(self, i)
  local first = (i - 1) * self.size + 1
  local last = math.min(first + self.size - 1, self.rows)
  local out, index = {}, self.order and self.order[{{first, last}}]
  for k = 1, self.count do
    local t = self.tensors[k]
    if index then
      out[k] = t[index:to(tostring(t.device))]
    else
      out[k] = t[{{first, last}}]
    end
    if self.device then out[k] = out[k]:to(self.device) end
  end
  return out
end

function Batches:__call()
  if self.bar then
    self.bar:update(self.i)
    if self.i == self.n then self.bar:finish() end
  end
  if self.i == self.n then return nil end
  self.i = self.i + 1
  local out = self.ahead or make(self, self.i)
  self.ahead = self.device and self.i < self.n and make(self, self.i + 1)
    or nil
  return unpack(out, 1, self.count)
end

-- -- Splitting -------------------------------------------------------------

--- data.split(x, t, ..., 0.8) -> x1, t1, x2, t2: 80 % of the rows and the rest,
-- in a common random order. {fraction = 0.8, shuffle = true, seed} stands for
-- the number.
function M.split(...)
  local who, n = "data.split", select("#", ...)
  local args = {...}
  if type(args[n]) == "number" then args[n] = {fraction = args[n]} end
  local o
  args, n, o = arguments(who, {"fraction", "shuffle", "seed"},
                         unpack(args, 1, n))
  local part = o.fraction
  if n == 0 then
    core.fail("data.split: no tensors given", "data.split(x, t, 0.8)")
  elseif type(part) ~= "number" or not (part > 0 and part < 1) then
    core.fail("data.split: the fraction is a number between 0 and 1, got "
              .. tostring(part), "data.split(x, t, 0.8)")
  end
  local rows = args[1]:size(1)
  local first = math.floor(rows * part + 0.5)
  if first == 0 or first == rows then
    core.fail(("data.split: %g of %d rows leaves one part empty"):format(part,
              rows))
  end
  local order
  if o.shuffle ~= false then order = random_order(rows, o.seed, who) end
  local out = {}
  for k = 1, n do
    local t = args[k]
    if order then t = t[order:to(tostring(t.device))] end
    out[k] = t[{{1, first}}]
    out[n + k] = t[{{first + 1, rows}}]
  end
  return unpack(out, 1, 2 * n)
end

return M
