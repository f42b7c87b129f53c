-- Recurrent layers: RNN, LSTM and GRU, and their cells.
--
-- The products of all inputs with the input weights are one product; what is
-- left is a scan over the steps, one for each layer and direction. Names and
-- order of the gates are PyTorch's.
local callable = require "limn.callable"
local core = require "limn.core"
local known = require("limn.dims").known
local read_options = require "limn.options"
local check = require "limn.nn.check"
local dropout = require "limn.nn.dropout"
local init = require "limn.nn.initializers"
local Module = require "limn.nn.module"
local linear = require "limn.nn.linear"

local limn = require "limn.lazy"

local M = {}

-- -- One step ----------------------------------------------------------------

-- x [rows, n * width] as n times [rows, width].
local function split(x, n, width)
  local parts = {}
  x = x:reshape {x:size(1), n, width}
  for i = 1, n do parts[i] = x[{{}, i}] end
  return unpack(parts)
end

local function recurrent(h, w)
  local y = limn.matmul(h, w, false, true)
  return y
end

-- Each takes the state, the input's part of the gates [rows, gates * width]
-- and the weights, and gives the next state, whose first is the result.
local step = {}

function step.rnn_tanh(s, x, w)
  local h = (x + recurrent(s[1], w[1])):tanh()
  return {h}
end

function step.rnn_relu(s, x, w)
  local h = (x + recurrent(s[1], w[1])):relu()
  return {h}
end

-- Hochreiter and Schmidhuber 1997, with Gers's forget gate; w[2] projects the
-- result to fewer values (Sak et al. 2014).
function step.lstm(s, x, w)
  local c = s[2]
  local i, f, g, o = split(x + recurrent(s[1], w[1]), 4, c:size(2))
  c = f:sigmoid() * c + i:sigmoid() * g:tanh()
  local h = o:sigmoid() * c:tanh()
  if w[2] then h = recurrent(h, w[2]) end
  return {h, c}
end

-- Cho et al. 2014; the reset gate acts after the product, as in PyTorch.
-- w[2] is the recurrent bias, which it scales too.
function step.gru(s, x, w)
  local h = s[1]
  local y = recurrent(h, w[1])
  if w[2] then y = y + w[2] end
  local xr, xz, xn = split(x, 3, h:size(2))
  local hr, hz, hn = split(y, 3, h:size(2))
  local r, z = (xr + hr):sigmoid(), (xz + hz):sigmoid()
  local n = (xn + r * hn):tanh()
  return {n + z * (h - n)}
end

-- Per kind: gates, whether there is a second state, what the step does.
local kinds = {
  rnn_tanh = {gates = 1, states = 1},
  rnn_relu = {gates = 1, states = 1},
  lstm = {gates = 4, states = 2},
  gru = {gates = 3, states = 1},
}

-- -- All steps ---------------------------------------------------------------

-- The step as a graph of its own: of the state, the gates and the weights, to
-- the next state and the result. Eager code runs a scan over it.
local function trace_step(name, f, states, weights)
  local tr = core.trace_begin(name, "trace")
  local ok, g = pcall(function()
    local s, w, args = {}, {}, {n = 0}
    local function input(list, ...)
      args.n = args.n + 1
      local x = core.trace_spec(tr, "v" .. args.n, "float32", {...}, {})
      args[args.n], list[#list + 1] = x, x
      return x
    end
    local rows = 2 * kinds[name].gates
    for _ = 1, states do input(s, 3, 2) end
    local x = input({}, 3, rows)
    input(w, rows, 2)
    if weights == 2 then
      if name == "gru" then input(w, rows) else input(w, 2, 2) end
    end
    core.trace_signature(tr, args)
    local r = f(s, x, w)
    r[#r + 1], r.n = r[1], #r + 1
    return core.trace_end(tr, r)
  end)
  if not ok then
    core.trace_abort(tr)
    error(g, 0)
  end
  return g
end

-- On a tape the graph also gives what its gradient needs, so that the backward
-- pass does not run the steps again.
local traced = {}
local function graph_of(name, f, states, weights, wide)
  local key = name .. weights .. (wide and "w" or "")
  local g = traced[key]
  if not g then
    if wide then
      g = core.scan_widen(graph_of(name, f, states, weights), states, 1)
    else
      g = trace_step(name, f, states, weights)
    end
    traced[key] = g
  end
  return g
end

-- Goes over the steps of `gates`: the results and the last state.
local function steps(kind, state, gates, w, reverse)
  local f = step[kind]
  if core.tracing() then
    local last, y = limn.scan(function(s, x)
      local next = f(s, x, w)
      return next, next[1]
    end, state, gates, {reverse = reverse})
    return y, last
  end
  local n = #state
  local g = graph_of(kind, f, n, #w, core.recording() == "tape")
  local r = {core.scan_run(g, state, {gates}, w, reverse, n + 1)}
  return table.remove(r), r
end

-- The inputs' part of the gates, and what each step takes.
local function prepare(kind, x, p)
  local bias, w = p.bias_ih, {p.weight_hh}
  if kind == "gru" then
    w[2] = p.bias_hh
  elseif bias then
    bias = bias + p.bias_hh
  end
  if p.weight_hr then w[2] = p.weight_hr end
  local gates = linear.linear(x, p.weight_ih, bias)
  return gates, w
end

-- The state before the first step, as wide as the weights want it.
local function zero_state(kind, gates, p)
  local rows, n = gates:size(-2), p.weight_hh:size(2)
  local s = {gates:new_zeros(rows, n)}
  if kinds[kind].states == 2 then
    s[2] = gates:new_zeros(rows, p.weight_hr and p.weight_hr:size(2) or n)
  end
  return s
end

-- x [steps, rows, in], state a list of [rows, width] or nil; p names the
-- weights. Returns the results [steps, rows, width] and the last state.
local function run(kind, x, state, p, reverse)
  local gates, w = prepare(kind, x, p)
  state = state or zero_state(kind, gates, p)
  return steps(kind, state, gates, w, reverse)
end

-- -- Functions ---------------------------------------------------------------

local function list(state, kind)
  if state == nil then return nil end
  if kinds[kind].states == 1 then return {state} end
  return state
end

local function unlist(state, kind)
  if kinds[kind].states == 1 then return state[1] end
  return state
end

-- A state as the caller gave it: a tensor, or for LSTM a list {h, c}.
local function read_state(who, kind, state, rank, want)
  local s = list(state, kind)
  if not s then return nil end
  if kinds[kind].states == 2
    and (core.type(s) or type(s) ~= "table" or #s ~= 2) then
    core.fail(who .. ": the state is a list {h, c}, not "
              .. (type(s) == "table" and not core.type(s)
                  and "a list of " .. #s or callable.noun(s)))
  end
  for i = 1, #s do
    check.tensor(s[i], who, "state")
    if s[i]:dim() ~= rank then
      core.fail(("%s: the state is %s, where %s is needed"):format(
        who, check.shape(s[i]), want))
    end
  end
  return s
end

-- The weights belong together: [gates * width, in] and [gates * width, out].
local function fit_weights(name, kind, o)
  for _, key in ipairs {"weight_ih", "weight_hh"} do
    check.tensor(o[key], name, key)
    if o[key]:dim() ~= 2 then
      core.fail(("%s: %s is %s, where a matrix is needed"):format(name, key,
        check.shape(o[key])))
    end
  end
  local gates, rows = kinds[kind].gates, known(o.weight_ih:size(1))
  local height, out = known(o.weight_hh:size(1)), known(o.weight_hh:size(2))
  local hr = o.weight_hr
  local width = hr and known(hr:size(1)) or height and height / gates
  if rows and height and out and width
    and (rows ~= height or height % gates ~= 0 or out ~= width) then
    core.fail(("%s: weight_ih is %s and weight_hh %s, where [%s, in] and "
      .. "[%s, %s] are needed"):format(name, check.shape(o.weight_ih),
      check.shape(o.weight_hh), gates == 1 and "width" or gates .. " * width",
      gates == 1 and "width" or gates .. " * width",
      hr and width or "width"))
  end
end

--- nn.lstm(x, {weight_ih, weight_hh, bias_ih, bias_hh, weight_hr, state,
-- reverse = false}): the results and the last state of one layer in one
-- direction. x is [steps, rows, in], weight_ih [4 * width, in], weight_hh
-- [4 * width, width], the state a list {h, c} of [rows, width] (zeros). The
-- gates are in PyTorch's order; weight_hr projects the results.
--- nn.gru(x, {weight_ih, weight_hh, bias_ih, bias_hh, state, reverse = false}):
-- the same of a GRU, with 3 gates; the state is h alone.
--- nn.rnn(x, {weight_ih, weight_hh, bias_ih, bias_hh, state, reverse = false,
-- nonlinearity = "tanh"}): the same of a plain recurrent layer (or "relu").
local function functional(name, kind_of)
  M[name] = function(x, options)
    local o = read_options(options, {"weight_ih", "weight_hh", "bias_ih",
      "bias_hh", "weight_hr", "state", "reverse", "nonlinearity"}, name)
    local kind = kind_of(o, name)
    check.fits(name, x, 3, 3, nil, nil, "[steps, rows, in]")
    fit_weights(name, kind, o)
    if (o.bias_ih == nil) ~= (o.bias_hh == nil) then
      core.fail(name .. ": bias_ih and bias_hh come together")
    end
    local s = read_state(name, kind, o.state, 2, "[rows, width]")
    local y, last = run(kind, x, s, o, o.reverse)
    return y, unlist(last, kind)
  end
end

local function nonlinearity(o, who)
  local f = o.nonlinearity or "tanh"
  if f ~= "tanh" and f ~= "relu" then
    core.fail(who .. ': the nonlinearity is "tanh" or "relu", got '
              .. tostring(f))
  end
  return "rnn_" .. f
end
local function only(kind)
  return function(o, who)
    if o.nonlinearity then
      core.fail(who .. " has its own nonlinearities",
                "nn.RNN takes one, and so does nn.rnn")
    end
    return kind
  end
end
functional("rnn", nonlinearity)
functional("lstm", only "lstm")
functional("gru", only "gru")

-- -- Layers ------------------------------------------------------------------

local function whole(o, key, default, who)
  if o[key] == nil then return default end
  return check.whole(o[key], who, key)
end

-- PyTorch's: uniform in +-1/sqrt(hidden_size).
local function parameters(self, suffix, kind, n_in, o)
  local n, rows = o.hidden, kinds[kind].gates * o.hidden
  local bound = 1 / math.sqrt(n)
  local function make(name, ...)
    self[name .. suffix] = core.cell("param",
      init.values("uniform", {...}, -bound, bound, o.dtype))
  end
  make("weight_ih", rows, n_in)
  make("weight_hh", rows, o.out)
  if o.bias then
    make("bias_ih", rows)
    make("bias_hh", rows)
  end
  if o.proj then make("weight_hr", o.proj, n) end
end

-- What weight_ih and the others of one layer and direction, or cell, are now.
local function weights(self, suffix, x)
  local p = {}
  for _, name in ipairs {"weight_ih", "weight_hh", "bias_ih", "bias_hh",
                         "weight_hr"} do
    local w = self[name .. suffix]
    p[name] = w and check.near(w, x)
  end
  return p
end

local function sizes(n_in, n, who)
  check.whole(n_in, who, "input_size",
              "nn." .. who .. "(128, 256) takes 128 values to 256")
  check.whole(n, who, "hidden_size",
              "nn." .. who .. "(128, 256) takes 128 values to 256")
end

local function suffix(layer, backward)
  return "_l" .. (layer - 1) .. (backward and "_reverse" or "")
end

local function setup(self, name, kind_of, n_in, n, options)
  sizes(n_in, n, name)
  if type(options) == "number" then
    core.fail(name .. ": the third argument is a table of options",
              ("nn.%s(%d, %d, {num_layers = %d})"):format(name, n_in, n,
                                                          options))
  end
  local allowed = {"num_layers", "bias", "batch_first", "dropout",
                   "bidirectional", "dtype"}
  if name == "LSTM" then allowed[#allowed + 1] = "proj_size" end
  if name == "RNN" then allowed[#allowed + 1] = "nonlinearity" end
  local o = read_options(options, allowed, name)
  self.kind = kind_of(o, name)
  self.input_size, self.hidden_size = n_in, n
  self.num_layers = whole(o, "num_layers", 1, name)
  self.bidirectional = o.bidirectional or false
  self.batch_first = o.batch_first or false
  local proj = o.proj_size and o.proj_size ~= 0 and o.proj_size or nil
  if proj and check.whole(proj, name, "proj_size") >= n then
    core.fail(("%s: proj_size %d is not below hidden_size %d"):format(name,
      proj, n))
  end
  self.output_size = proj or n
  local spec = {hidden = n, out = proj or n, proj = proj,
                bias = o.bias ~= false, dtype = o.dtype}
  for layer = 1, self.num_layers do
    local width = layer == 1 and n_in
      or self.output_size * (self.bidirectional and 2 or 1)
    for back = 0, self.bidirectional and 1 or 0 do
      parameters(self, suffix(layer, back == 1), self.kind, width, spec)
    end
  end
  if o.dropout and o.dropout > 0 then
    self.dropout = dropout.Dropout(o.dropout)
  end
end

-- The state of one layer and direction, number `at`, as a list.
local function state_at(state, at)
  local s = {}
  if not state then return nil end
  for i = 1, #state do s[i] = state[i][at] end
  return s
end

-- One layer in all its directions; appends last states to `last`.
local function layer(self, x, number, state, last)
  local ys = {}
  for back = 0, self.bidirectional and 1 or 0 do
    local y, s = run(self.kind, x, state_at(state, #last + 1),
                     weights(self, suffix(number, back == 1), x), back == 1)
    last[#last + 1] = s
    ys[#ys + 1] = y
  end
  if #ys == 1 then return ys[1] end
  local y = limn.cat(ys, -1)
  return y
end

-- Last states of all layers and directions: [layers * directions, rows, n].
local function gather(self, last, single)
  local state = {}
  for i = 1, kinds[self.kind].states do
    local all = {}
    for k, s in ipairs(last) do all[k] = s[i] end
    state[i] = limn.stack(all, 1)
    if single then state[i] = state[i]:squeeze(2) end
  end
  return unlist(state, self.kind)
end

-- The states have `size` (false: not known), then want[i]; the rows stand in
-- dim `at`, which one example (`single`) came without.
local function agree(self, state, size, want, single, at)
  local last = #size + 1
  for i, s in ipairs(state) do
    size[last] = want[i]
    for d = 1, #size do
      local is = known(s:size(d))
      if is and size[d] and is ~= size[d] then
        local shown = {unpack(size)}
        if single then table.remove(shown, at) end
        for k, n in ipairs(shown) do shown[k] = tostring(n or "rows") end
        core.fail(("%s: the state %s is %s, where [%s] is needed"):format(
          check.who(self), ({"h", "c"})[i],
          check.shape(single and s:squeeze(at) or s),
          table.concat(shown, ", ")))
      end
    end
  end
end

--- nn.LSTM(input_size, hidden_size [, {num_layers = 1, bias = true,
-- batch_first = false, dropout = 0, bidirectional = false, proj_size = 0,
-- dtype}]): layer(x [, state]) gives the results of the last layer [steps,
-- rows, hidden_size] and the last states. x is [steps, rows, input_size]
-- ([rows, steps, input_size] with batch_first), or without rows; a state is a
-- list {h, c} of [layers * directions, rows, hidden_size], zeros where none is
-- given. Parameters have PyTorch's names: weight_ih_l0, weight_hh_l0_reverse...
--- nn.GRU(input_size, hidden_size [, {num_layers = 1, bias = true,
-- batch_first = false, dropout = 0, bidirectional = false, dtype}]): the same
-- of a GRU; its state is h alone.
--- nn.RNN(input_size, hidden_size [, {num_layers = 1, bias = true,
-- nonlinearity = "tanh", batch_first = false, dropout = 0, bidirectional =
-- false, dtype}]): the same of a plain recurrent layer.
local function forward(self, x, state)
  local first = self.batch_first
  local what = first and "rows, steps" or "steps, rows"
  check.fits(self, x, 2, 3, -1, self.input_size,
             ("[%s, %d] or [steps, %d]"):format(what, self.input_size,
                                                self.input_size))
  local single = x:dim() == 2
  state = read_state(check.who(self), self.kind, state, single and 2 or 3,
    single and "[layers * directions, width]"
    or "[layers * directions, rows, width]")
  if single then
    x = x:unsqueeze(2)
    for i = 1, state and #state or 0 do state[i] = state[i]:unsqueeze(2) end
  elseif first then
    x = x:transpose(1, 2)
  end
  if state then
    agree(self, state, {self.num_layers * (self.bidirectional and 2 or 1),
      known(x:size(2)) or false}, {self.output_size, self.hidden_size},
      single, 2)
  end
  local last = {}
  for i = 1, self.num_layers do
    if i > 1 and self.dropout then x = self.dropout(x) end
    x = layer(self, x, i, state, last)
  end
  if single then
    x = x:squeeze(2)
  elseif first then
    x = x:transpose(1, 2)
  end
  return x, gather(self, last, single)
end

local function describe(self)
  local s = self.input_size .. ", " .. self.hidden_size
  if self.num_layers > 1 then
    s = s .. ", {num_layers = " .. self.num_layers .. "}"
  end
  return s
end

for name, kind_of in pairs {RNN = nonlinearity, LSTM = only "lstm",
                            GRU = only "gru"} do
  local Layer = Module:extend(name)
  function Layer:init(n_in, n, options)
    setup(self, name, kind_of, n_in, n, options)
  end
  Layer.forward, Layer.describe = forward, describe
  M[name] = Layer
end

-- -- Cells -------------------------------------------------------------------

--- nn.LSTMCell(input_size, hidden_size [, {bias = true, dtype}]): one step of
-- an LSTM: cell(x [, {h, c}]) gives the next h and c. x is [rows, input_size]
-- or [input_size]; the state is zeros where none is given.
--- nn.GRUCell(input_size, hidden_size [, {bias = true, dtype}]): one step of a
-- GRU: cell(x [, h]) gives the next h.
--- nn.RNNCell(input_size, hidden_size [, {bias = true, nonlinearity = "tanh",
-- dtype}]): one step of a plain recurrent layer: cell(x [, h]) gives the next
-- h.
local function cell_forward(self, x, state)
  check.fits(self, x, 1, 2, -1, self.input_size,
             ("[rows, %d]"):format(self.input_size))
  local single = x:dim() == 1
  state = read_state(check.who(self), self.kind, state, single and 1 or 2,
                     single and "[width]" or "[rows, width]")
  if single then
    x = x:unsqueeze(1)
    for i = 1, state and #state or 0 do state[i] = state[i]:unsqueeze(1) end
  end
  if state then
    local n = self.hidden_size
    agree(self, state, {known(x:size(1)) or false}, {n, n}, single, 1)
  end
  local p = weights(self, "", x)
  local gates, w = prepare(self.kind, x, p)
  state = state or zero_state(self.kind, gates, p)
  local next = step[self.kind](state, gates, w)
  for i = 1, #next do
    if single then next[i] = next[i]:squeeze(1) end
  end
  return unpack(next)
end

for name, kind_of in pairs {RNNCell = nonlinearity, LSTMCell = only "lstm",
                            GRUCell = only "gru"} do
  local Cell = Module:extend(name)
  function Cell:init(n_in, n, options)
    sizes(n_in, n, name)
    local allowed = {"bias", "dtype"}
    if name == "RNNCell" then allowed[3] = "nonlinearity" end
    local o = read_options(options, allowed, name)
    self.kind = kind_of(o, name)
    self.input_size, self.hidden_size = n_in, n
    parameters(self, "", self.kind, n_in,
               {hidden = n, out = n, bias = o.bias ~= false, dtype = o.dtype})
  end
  Cell.forward, Cell.describe = cell_forward, describe
  M[name] = Cell
end

return M
