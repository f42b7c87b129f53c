--- Gradients: limn.grad, limn.value_and_grad, limn.no_grad, limn.custom.
local callable = require "limn.callable"
local core = require "limn.core"
local sorted_keys = require "limn.sorted_keys"
local pack = require "limn.pack"

local ops, fail = core.ops, core.fail
local plain, check_function = callable.plain, callable.check
local M = {}

-- -- With respect to what -------------------------------------------------

local function has_parameters(w)
  if type(w) ~= "table" and core.type(w) ~= "graph" then return false end
  local ok, f = pcall(function() return w.named_parameters end)
  return ok and type(f) == "function"
end

local function each_parameter(w)
  local f, s, v = w:named_parameters()
  if type(f) == "table" then -- a list of {name, cell}
    local i, list = 0, f
    return function()
      i = i + 1
      if list[i] then return list[i][1], list[i][2] end
    end
  end
  return f, s, v
end

-- Appends what w stands for to `flat` and its names to `names`; returns a
-- function that gives the gradients of that part their form.
local function collect(w, flat, names, label)
  local kind = core.type(w)
  if kind == "cell" or kind == "tensor" then
    flat[#flat + 1] = w
    names[#names + 1] = kind == "cell" and w.name or label
    local at = #flat
    return function(g) return g[at] end
  elseif has_parameters(w) then
    local order, at = {}, {}
    for name, cell in each_parameter(w) do
      if not cell.frozen then
        flat[#flat + 1] = cell
        names[#names + 1] = name
        order[#order + 1], at[name] = name, #flat
      end
    end
    return function(g)
      local t = {}
      for _, name in ipairs(order) do t[name] = g[at[name]] end
      return t
    end
  elseif plain(w) then
    local keys, parts = sorted_keys(w), {}
    for i, k in ipairs(keys) do
      parts[i] = collect(w[k], flat, names, label .. " " .. k)
    end
    return function(g)
      local t = {}
      for i, k in ipairs(keys) do t[k] = parts[i](g) end
      return t
    end
  end
  fail("a gradient is taken with respect to a module, a cell, a tensor or a "
    .. "table of them, not " .. (kind or type(w)))
end

-- -- One gradient ---------------------------------------------------------

local function check_loss(loss)
  if core.type(loss) ~= "tensor" then
    fail("the function returns " .. (core.type(loss) or type(loss))
      .. " where the loss is wanted", "return a 0-dim tensor first")
  end
  if loss:dim() ~= 0 then
    local n = loss:dim()
    fail(("the loss has %d dim%s; a gradient needs one number"):format(n,
      n == 1 and "" or "s"), "use :mean() or :sum()")
  end
end

-- A gradient of zeros; a cell's is where the loss is, as others are.
local function zeros_like(x, loss)
  local y
  if core.type(x) == "cell" and not core.tracing() then
    y = core.full(x.shape, 0, {dtype = x.dtype, device = loss.device})
  else
    y = ops.full_like(x, 0)
  end
  return y
end

-- unused: "zeros", or the number of choices that eager code had made before f.
-- What a branch reaches that was not taken has a gradient in a trace: zeros.
local function finish(loss, refs, start, nested, flat, names, unused)
  check_loss(loss)
  local grads = core.gradient(loss, refs, start, nested)
  local zeros = unused == "zeros" or unused < core.choices()
  for i = 1, #flat do
    if not grads[i] then
      if not zeros or unused ~= "zeros" and core.grad_stop(loss, refs[i]) then
        local op, line = core.grad_stop(loss, refs[i])
        if op then
          fail(("%s%s has no gradient, and the loss depends on %s only "
            .. "through it"):format(line == "" and "" or line .. ": ", op,
            names[i]), 'pass {unused = "zeros"} if it is meant as a constant')
        end
        fail(("the loss does not depend on %s"):format(names[i]),
          'leave it out, or pass {unused = "zeros"}')
      end
      grads[i] = zeros_like(flat[i], loss)
    end
  end
  return grads
end

-- f(...) is recorded and differentiated; results and gradients.
local function differentiate(f, flat, names, unused, args)
  local recording = core.recording()
  unused = unused or core.choices()
  if recording then
    local refs, start = core.grad_watch(flat)
    local r = pack(f(unpack(args, 1, args.n)))
    return r, finish(r[1], refs, start, recording == "tape", flat, names,
      unused)
  end
  local tape = core.trace_begin("gradient", "tape")
  local ok, r, grads = pcall(function()
    local refs, start = core.grad_watch(flat)
    local out = pack(f(unpack(args, 1, args.n)))
    return out, finish(out[1], refs, start, false, flat, names, unused)
  end)
  core.trace_abort(tape)
  if not ok then error(r, 0) end
  return r, grads
end

local function unused_of(options)
  local unused = options and options.unused
  if unused ~= nil and unused ~= "zeros" then
    fail('unused is "zeros" or absent, not ' .. tostring(unused))
  end
  return unused
end

--- limn.value_and_grad(f, wrt [, {unused = "zeros"}]) -> function: with f's
-- arguments it returns the loss (0-dim, float; f's first result), the gradients
-- with respect to wrt, and what else f returned. wrt is a module, a loaded
-- model, a cell, a tensor that f captures, or a list of these; gradients of a
-- module are a table by parameter name, of a list a list. A wanted parameter
-- that the loss does not reach is an error, unless unused = "zeros"; one that
-- only a branch or loop body reaches which did not run has zeros.
function M.value_and_grad(f, wrt, options)
  check_function(f, "value_and_grad")
  core.options(options, {"unused"}, "value_and_grad")
  if wrt == nil then
    fail("value_and_grad(f, wrt): with respect to what?",
      "a module, a cell, a captured tensor, or a list; limn.grad(f) is for "
        .. "the first argument")
  end
  local unused = unused_of(options)
  return function(...)
    local flat, names = {}, {}
    local shape = collect(wrt, flat, names, "the tensor")
    local r, grads = differentiate(f, flat, names, unused, pack(...))
    return r[1], shape(grads), unpack(r, 2, r.n)
  end
end

-- Values of their own: what f reaches under another name is a constant. Where
-- a gradient may be taken of the gradient, it goes on through these.
local function fresh(v)
  if core.type(v) == "tensor" then
    return core.recording() and ops.expand_like(v, v) or core.fresh(v)
  end
  if not plain(v) then return v end
  local t = {}
  for k, x in pairs(v) do t[k] = fresh(x) end
  return t
end

--- limn.grad(f) -> function: the gradient of f's loss with respect to its first
-- argument, which is a tensor or a table of tensors; the result has its form.
function M.grad(f, options)
  check_function(f, "grad")
  core.options(options, {"unused"}, "grad")
  local unused = unused_of(options)
  return function(x, ...)
    local args, flat, names = pack(x, ...), {}, {}
    args[1] = fresh(x)
    local shape = collect(args[1], flat, names, "argument 1")
    local _, grads = differentiate(f, flat, names, unused, args)
    return shape(grads)
  end
end

--- x as a constant.
M.detach = core.detach

local function detach_all(v)
  if core.type(v) == "tensor" then return (core.detach(v)) end
  if not plain(v) then return v end
  local out = {}
  for k, x in pairs(v) do out[k] = detach_all(x) end
  return out
end

--- limn.no_grad(f, ...) -> what f returns, as constants: no gradient goes
-- through.
function M.no_grad(f, ...)
  check_function(f, "no_grad")
  local r = pack(f(...))
  for i = 1, r.n do r[i] = detach_all(r[i]) end
  return unpack(r, 1, r.n)
end

-- -- limn.custom ----------------------------------------------------------

-- f as a region with inputs like these values: it, and what f gives.
local function region(name, f, values, names)
  local tr = core.trace_begin(name, "region")
  local ok, r = pcall(function()
    local args = {n = #values}
    for i = 1, #values do
      args[i] = core.region_input(tr, names[i], values[i], false)
    end
    local r = pack(f(unpack(args, 1, args.n)))
    core.region_leave(tr)
    return r
  end)
  if not ok then
    core.trace_abort(tr)
    error(r, 0)
  end
  return tr, r
end

-- Where f broadcasts its argument, g may have more dims; they are summed.
local function check_vjp(i, g, x)
  local kind = core.type(g)
  if kind ~= "tensor" and kind ~= "cell" then
    fail(("custom: vjp gives a %s as the gradient of argument %d"):format(
      kind or type(g), i), "a tensor of the argument's shape, or nil")
  elseif g:dim() < x:dim() then
    fail(("custom: the gradient that vjp gives of argument %d has %d dim%s, "
      .. "the argument has %d"):format(i, g:dim(), g:dim() == 1 and "" or "s",
      x:dim()), "a gradient has its argument's shape; expand_like makes it so")
  end
end

-- The node of f and vjp; `open` gets the regions, which the caller closes.
local function custom_node(f, vjp, args, open)
  local names = {}
  for i = 1, args.n do
    if core.type(args[i]) ~= "tensor" and core.type(args[i]) ~= "cell" then
      fail(("custom: argument %d must be a tensor, not a %s"):format(i,
        core.type(args[i]) or type(args[i])),
        "numbers can be upvalues of f and vjp")
    end
    names[i] = "x" .. i
  end
  local fr, r = region("custom", f, args, names)
  open[1] = fr
  if r.n ~= 1 or core.type(r[1]) ~= "tensor" then
    fail "custom: f must return one tensor"
  end
  local vr, back = region("vjp", vjp, {r[1], r[1], unpack(args, 1, args.n)},
    {"g", "y", unpack(names)})
  open[2] = vr
  if back.n > args.n then
    fail(("custom: vjp gives %d gradients for %d argument%s"):format(back.n,
      args.n, args.n == 1 and "" or "s"))
  end
  for i = 1, back.n do
    back[i] = back[i] or false
    if back[i] then check_vjp(i, back[i], args[i]) end
  end
  core.region_give(fr, r, {false})
  core.region_give(vr, back, {})
  return (core.custom_node(args, fr, vr))
end

--- limn.custom(f, vjp) -> function: one node with a gradient of its own. vjp(g,
-- y, ...) gets the gradient of the result y and f's arguments, and gives the
-- gradients of these (nil where there is none).
function M.custom(f, vjp)
  check_function(f, "custom")
  check_function(vjp, "custom")
  return function(...)
    local recording = core.recording()
    local args = pack(...)
    if not recording then
      local y = core.region_run(f, ...)
      return y
    end
    local open = {}
    local ok, y = pcall(custom_node, f, vjp, args, open)
    for i = 1, #open do core.trace_abort(open[i]) end
    if not ok then error(y, 0) end
    return y
  end
end

return M
