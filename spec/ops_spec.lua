-- Every row of the op table: values against plain doubles, dtypes, layouts,
-- empty and size-1 dims, NaN, gradients against finite differences, and traced
-- on one device, run on every other.
local U = require "support.util"
local T = require "support.optable"
local R = require "support.reference"
local S = require "support.special"
local limn = U.limn
local core = require "limn.core"

local nan = 0 / 0

-- -- Inputs --

local floats = {float64 = true, float32 = true, float16 = true,
                bfloat16 = true}
local tolerance = {float64 = 1e-12, float32 = 5e-6, float16 = 1e-3,
                   bfloat16 = 8e-3}
local widths = {int64 = 64, int32 = 32, int8 = 8, uint8 = 8}

-- One number of a domain: a real, or a whole one for the other dtypes.
local function number(domain, dtype, r)
  local u = r()
  if domain == "BOOL" or (dtype == "bool" and domain == "REAL") then
    return u < 0.5 and 0 or 1
  elseif dtype == "bool" then
    return domain == "UNIT" and 0 or 1
  elseif floats[dtype] then
    if domain == "REAL" then return 4 * u - 2 end
    if domain == "POS" then return 0.3 + 2 * u end
    if domain == "UNIT" then return 1.5 * u - 0.75 end
    if domain == "GE1" then return 1.3 + 2 * u end
    return (u < 0.5 and -1 or 1) * (0.3 + 1.7 * r())
  end
  local low, high = -3, 4
  if domain == "POS" then low, high = 1, 4 end
  if domain == "GE1" then low, high = 2, 4 end
  if domain == "UNIT" then low, high = 0, 0 end
  local v = low + math.floor(u * (high - low + 1))
  if domain == "NZ" and v == 0 then v = 2 end
  return dtype == "uint8" and math.abs(v) or v
end

local function array(shape, domain, dtype, r)
  local a = {shape = shape, data = {}}
  for k = 1, R.numel(shape) do a.data[k] = number(domain, dtype, r) end
  return a
end

-- The tensor of an array, and the array as the dtype holds it.
local function make(a, dtype, dev)
  local t = U.tensor(a.data, a.shape, dtype)
  local back = {shape = a.shape, data = U.flat(t)}
  if dev ~= "cpu" then t = t:to(dev) end
  return t, back
end

-- Whole numbers wrap to their width, as stores do.
local function wrap(data, dtype)
  local bits = widths[dtype]
  if not bits or bits > 32 then return data end
  local out, n = {}, 2 ^ bits
  for i, v in ipairs(data) do
    v = v % n
    if dtype ~= "uint8" and v >= n / 2 then v = v - n end
    out[i] = v
  end
  return out
end

local function result_dtype(rule, dtype)
  if rule == "CMP" or rule == "TST" or rule == "LOG" then return "bool" end
  if floats[dtype] then return dtype end
  if rule == "FLT" then return "float32" end
  if rule == "SUM" then return "int64" end
  return dtype
end

-- What a row is traced with, and tried on views.
local function usual(row) return row.rule == "BIT" and "int32" or "float32" end

local every = {"float64", "float32", "float16", "bfloat16", "int64", "int32",
               "int8", "uint8", "bool"}
-- Accelerators compile a kernel for each dtype and layout class: these dtypes
-- for all ops, and broadcast ones in float32 only. (Gradients are in float64.)
local fewer = {"float32", "float16", "int32", "bool"}
local function dtypes(dev) return dev == "cpu" and every or fewer end
local function alike(list)
  for i = 2, #list do
    for d = 1, 2 do
      if list[i][d] ~= list[1][d] then return false end
    end
  end
  return true
end

local function check(got, want, rule, dtype, dev, what)
  local is = result_dtype(rule, dtype)
  U.shape(got, want.shape, what)
  assert.are.equal(is, tostring(got.dtype), what)
  assert.are.equal(dev, tostring(got.device), what)
  U.close(got, wrap(want.data, is), tolerance[is] or 0, 1, what)
end

-- -- Elementwise --

local shapes = {
  {{{2, 3}}, {{5, 1}}, {{0, 3}}, {{1, 1}}},
  {{{2, 3}, {2, 3}}, {{4, 1}, {1, 3}}, {{1, 1}, {2, 2}}, {{0, 3}, {1, 3}}},
  {{{2, 3}, {2, 3}, {2, 3}}, {{4, 1}, {1, 3}, {1, 1}},
   {{1, 1}, {1, 2}, {3, 1}}, {{0, 3}, {1, 3}, {1, 1}}},
}

local function operands(row, list, dtype, r, dev)
  local x, a = {}, {}
  for i, shape in ipairs(list) do
    local dt, domain = dtype, row.domain
    if row.name == "where" and i == 1 then dt, domain = "bool", "BOOL" end
    if row.name == "clamp" and i > 1 then domain = "CLAMP" end
    local v
    if row.name == "polygamma" and i == 1 then -- an order
      v = array(shape, "POS", "int64", r)
    elseif domain == "CLAMP" then -- min below max
      v = array(shape, "REAL", dt, r)
      for k in ipairs(v.data) do
        v.data[k] = i == 2 and (dt == "uint8" and 1 or -1) or 2
      end
    else
      v = array(shape, domain, dt, r)
    end
    x[i], a[i] = make(v, dt, dev)
  end
  return x, a
end

local function differentiable(row)
  for _, g in ipairs(row.grads) do if g ~= "NONE" then return true end end
  return false
end

-- Gradients of sum(w * y) by central differences of the reference.
local function numeric(reference, arrays, weights, n)
  local h, out = 1e-6, {}
  local function loss()
    local y, s = reference(unpack(arrays)), 0
    for k, v in ipairs(y.data) do s = s + v * weights[k] end
    return s
  end
  local a = arrays[n]
  for k, v in ipairs(a.data) do
    a.data[k] = v + h
    local up = loss()
    a.data[k] = v - h
    out[k] = (up - loss()) / (2 * h)
    a.data[k] = v
  end
  return out
end

local function weigh(y)
  local w = limn.arange(1, y:numel(), {dtype = y.dtype, device = y.device})
  local loss = (y * w:sin():reshape_like(y)):sum()
  return loss
end

-- The analytic gradients at float64 inputs, eager and traced everywhere.
local function check_gradient(call, x, a, reference, at, dev)
  local y = reference(unpack(a))
  local weights = {}
  for k = 1, #y.data do weights[k] = math.sin(k) end
  local function all(...)
    local args, wrt = {...}, {}
    for i, n in ipairs(at) do wrt[i] = args[n] end
    local _, g = limn.value_and_grad(function()
      return weigh(call(unpack(args)))
    end, wrt)()
    return g
  end
  local want = {}
  for i, n in ipairs(at) do want[i] = numeric(reference, a, weights, n) end
  local function compare(g, how)
    for i, n in ipairs(at) do
      U.shape(g[i], a[n].shape, how)
      U.close(g[i], want[i], 1e-6, 1, how .. ", operand " .. n)
    end
  end
  compare(all(unpack(x)), "gradient on " .. dev)
  local graph = limn.trace(all, unpack(x))
  U.each_device(function(to)
    local far = {}
    for i, t in ipairs(x) do far[i] = t:to(to) end
    compare(graph(unpack(far)), "gradient, traced on " .. dev .. ", on " .. to)
  end)
end

describe("Elementwise ops agree with double arithmetic:", function()
  for row in T.each "E" do
    if U.selected(row.name) then
      local call = core.ops[row.name]
      local f = R.e[row.name]
      local function reference(...) return R.map(f, {...}) end

      it(row.name .. ", one graph for all devices, dtypes and shapes",
         function()
        assert.is_function(f, "no reference for " .. row.name)
        local graphs, text = {}, nil
        U.each_device(function(from)
          local x = operands(row, shapes[row.arity][1], usual(row),
                             U.random(3), from)
          local g = limn.trace(function(...)
            local y = call(...)
            return y
          end, unpack(x))
          text = text or tostring(g)
          assert.are.equal(text, tostring(g))
          graphs[#graphs + 1] = {from, g}
        end)
        U.each_device(function(dev)
          for _, dtype in ipairs(dtypes(dev)) do
            if T.takes(row, dtype) then
              local r = U.random(7)
              for _, list in ipairs(shapes[row.arity]) do
                if dev == "cpu" or dtype == "float32" or alike(list) then
                  local x, a = operands(row, list, dtype, r, dev)
                  local want = R.map(f, a, not floats[dtype] and dtype)
                  check(call(unpack(x)), want, row.rule, dtype, dev,
                        "eager " .. dtype .. " on " .. dev)
                  for _, g in ipairs(graphs) do
                    check(g[2](unpack(x)), want, row.rule, dtype, dev,
                          ("traced on %s, run on %s in %s"):format(g[1], dev,
                                                                   dtype))
                  end
                end
              end
            end
          end
        end)
      end)

      it(row.name .. " of transposed, flipped, stepped and expanded views",
         function()
        U.each_device(function(dev)
          local views = {
            function(t) return t:t() end,
            function(t) return t:flip(2) end,
            function(t) return t[{{1, -1, 2}, {2, -1}}] end,
            function(t) return t[{{2}, {}}]:expand(5, 4) end,
          }
          for v, view in ipairs(views) do
            local list, r = {}, U.random(11)
            for i = 1, row.arity do list[i] = {3, 4} end
            local dtype = usual(row)
            local x = operands(row, list, dtype, r, dev)
            local a = {}
            for i in ipairs(x) do
              x[i] = view(x[i])
              a[i] = {shape = x[i].shape, data = U.flat(x[i])}
            end
            check(call(unpack(x)), R.map(f, a), row.rule, dtype, dev,
                  "view " .. v .. " on " .. dev)
          end
        end)
      end)

      if row.rule ~= "BIT" then
        it(row.name .. " of NaN", function()
          U.each_device(function(dev)
            local pairs_ = {{{nan, 1.5}}, {{nan, 1.5, nan}, {1.5, nan, nan}},
                            {{1, 0, 1}, {nan, nan, 1}, {1, nan, nan}}}
            if row.name == "clamp" then
              pairs_[3] = {{nan, 1.5, 0.5}, {1, nan, 1}, {2, 2, 2}}
            end
            local a, x = {}, {}
            for i, data in ipairs(pairs_[row.arity]) do
              a[i] = {shape = {#data}, data = data}
              x[i] = U.tensor(data, {#data}, "float32", dev)
            end
            if row.name == "where" then x[1] = x[1]:ne(0) end
            check(call(unpack(x)), R.map(f, a), row.rule, "float32", dev, dev)
          end)
        end)
      end

      if differentiable(row) then
        it(row.name .. "'s gradient is that of finite differences", function()
          U.each_device(function(dev)
            for s = 1, row.arity == 1 and 1 or 2 do
              local list = shapes[row.arity][s]
              local x, a = operands(row, list, "float64", U.random(5), dev)
              local at = {}
              for i, g in ipairs(row.grads) do
                if g ~= "NONE" then at[#at + 1] = i end
              end
              check_gradient(call, x, a, reference, at, dev)
            end
          end)
        end)
      elseif row.rule ~= "BIT" then
        it(row.name .. " says that it has no gradient", function()
          local x = operands(row, shapes[row.arity][1], "float64",
                             U.random(5), "cpu")
          U.message(function()
            limn.grad(function(a, ...)
              local y = call(a, ...):to "float64"
              return y:sum()
            end)(unpack(x))
          end, row.name)
        end)
      end
    end
  end
end)

-- -- Reductions --

describe("Reductions agree with double arithmetic:", function()
  -- dims (nil: all), keepdim, shapes of one rank
  local ways = {{nil, false}, {{2}, false}, {{1, 3}, true}, {{-1}, true}}
  local sizes = {{2, 3, 4}, {1, 1, 1}, {4, 1, 33}}
  for row in T.each "R" do
    if U.selected(row.name) then
      local call = core.ops[row.name]
      local function options(way) return {dim = way[1], keepdim = way[2]} end
      local domain = row.rule == "LOG" and "BOOL" or "REAL"

      it(row.name .. ", one graph for all devices, dtypes and shapes",
         function()
        assert.is_table(R.r[row.name], "no reference for " .. row.name)
        local graphs = {}
        U.each_device(function(from)
          local g = limn.trace(function(x)
            local y = {}
            for i, way in ipairs(ways) do y[i] = call(x, options(way)) end
            return y
          end, limn.ones(2, 3, 4):to(from))
          graphs[#graphs + 1] = {from, g}
        end)
        assert.are.equal(tostring(graphs[1][2]), tostring(graphs[#graphs][2]))
        U.each_device(function(dev)
          for _, dtype in ipairs(dtypes(dev)) do
            if T.takes(row, dtype) then
              local r = U.random(7)
              for _, size in ipairs(sizes) do
                local v = array(size, domain, dtype, r)
                if row.name == "prod" then
                  for k, e in ipairs(v.data) do
                    v.data[k] = floats[dtype] and 1 + e / 10 or e == 0 and 1
                      or k % 5 == 1 and e or 1
                  end
                end
                local x, a = make(v, dtype, dev)
                for i, way in ipairs(ways) do
                  local want = R.reduce(row.name, a, way[1], way[2])
                  check(call(x, options(way)), want, row.rule, dtype, dev,
                        ("eager %s on %s, way %d"):format(dtype, dev, i))
                  for _, g in ipairs(graphs) do
                    check(g[2](x)[i], want, row.rule, dtype, dev, ("traced on "
                      .. "%s, run on %s in %s, way %d"):format(g[1], dev,
                                                               dtype, i))
                  end
                end
              end
            end
          end
        end)
      end)

      it(row.name .. " of views, of nothing and of NaN", function()
        U.each_device(function(dev)
          local x = make(array({5, 6}, domain, "float32", U.random(9)),
                         "float32", dev)
          for _, v in ipairs {x:t(), x:flip(1), x[{{1, -1, 2}, {2, 5}}],
                              x[{{2}}]:expand(3, 6)} do
            local a = {shape = v.shape, data = U.flat(v)}
            for _, way in ipairs {{nil, false}, {{1}, false}, {{2}, true}} do
              check(call(v, options(way)), R.reduce(row.name, a, way[1],
                    way[2]), row.rule, "float32", dev)
            end
          end
          local empty = limn.zeros(0, 3):to(dev)
          if R.r[row.name][1] then
            check(call(empty), R.reduce(row.name, {shape = {0, 3},
                  data = {}}), row.rule, "float32", dev, "empty")
            check(call(empty, 1), R.reduce(row.name, {shape = {0, 3},
                  data = {}}, {1}), row.rule, "float32", dev, "empty")
          else
            U.message(function() call(empty) end, row.name, "no elements")
          end
          U.shape(call(empty, 2), {0})
          local data = {1, nan, 2, 3, 1, 2}
          check(call(U.tensor(data, {2, 3}, "float32", dev), 2),
                R.reduce(row.name, {shape = {2, 3}, data = data}, {2}),
                row.rule, "float32", dev, "NaN")
        end)
      end)

      if differentiable(row) then
        it(row.name .. "'s gradient is that of finite differences", function()
          U.each_device(function(dev)
            for _, way in ipairs(ways) do
              local x, a = make(array({2, 3, 2}, "NZ", "float64", U.random(4)),
                                "float64", dev)
              check_gradient(function(t)
                local y = call(t, options(way))
                return y
              end, {x}, {a}, function(v)
                return R.reduce(row.name, v, way[1], way[2])
              end, {1}, dev)
            end
          end)
        end)
      end
    end
  end
end)

-- -- The others --

-- A case of special.lua or composed.lua: eager and traced on every device, on
-- all its inputs, and gradients of the first ones.
local function check_case(case)
  local function operands_of(list, dtype, dev)
    local x, a, r = {}, {}, U.random(13)
    for i, v in ipairs(list) do
      local dt = dtype
      if v.int then dt = "int64" elseif v.bool then dt = "bool" end
      if not v.data then v = array(v, "NZ", dtype, r) end
      x[i], a[i] = make(v, dt, dev)
    end
    return x, a
  end
  local graphs = {}
  U.each_device(function(from)
    local x = operands_of(case.on[1], "float32", from)
    graphs[#graphs + 1] = {from, limn.trace(function(...)
      local y = case.call(...)
      return y
    end, unpack(x))}
  end)
  assert.are.equal(tostring(graphs[1][2]), tostring(graphs[#graphs][2]))
  U.each_device(function(dev)
    for _, dtype in ipairs {"float64", "float32"} do
      for n, list in ipairs(case.on) do
        local x, a = operands_of(list, dtype, dev)
        local want = case.want(unpack(a))
        local function compare(y, how)
          how = ("%s on %s in %s, inputs %d"):format(how, dev, dtype, n)
          U.shape(y, want.shape, how)
          assert.are.equal(case.dtype or dtype, tostring(y.dtype), how)
          assert.are.equal(dev, tostring(y.device), how)
          U.close(y, want.data, tolerance[dtype], "max", how)
        end
        compare(case.call(unpack(x)), "eager")
        for _, g in ipairs(graphs) do
          compare(g[2](unpack(x)), "traced on " .. g[1] .. ", run")
        end
      end
    end
    if case.grad ~= false then
      local x, a = operands_of(case.on[1], "float64", dev)
      local at = {}
      for i, v in ipairs(case.on[1]) do
        if not v.data and not (case.still and case.still[i]) then
          at[#at + 1] = i
        end
      end
      check_gradient(case.call, x, a, case.want, at, dev)
    end
  end)
end

describe("Views, generators and special ops agree with plain Lua:", function()
  for row in T.each "VGS" do
    local case = S.cases[row.name]
    if not case and S.elsewhere[row.name] then
      it(row.name .. " is checked by " .. S.elsewhere[row.name], function()
        local text = U.read_file("spec/" .. S.elsewhere[row.name])
        assert.is_truthy(text:find(row.name, 1, true))
      end)
    elseif U.selected(row.name) then
      it(row.name, function()
        assert.is_table(case, row.name .. " has no case in special.lua")
        check_case(case)
      end)
    end
  end
end)

describe("What is made of ops agrees with plain Lua:", function()
  for _, case in ipairs(require "support.composed") do
    if U.selected(case.name) then
      it(case.name, function() check_case(case) end)
    end
  end
end)

describe("The op table and Lua", function()
  it("have the same ops", function()
    local n = 0
    for row in T.each "ERVGS" do
      n = n + 1
      assert.is_function(core.ops[row.name], row.name)
    end
    for name in pairs(core.ops) do
      assert.is_table(T.rows[name], name)
      n = n - 1
    end
    assert.are.equal(0, n)
  end)
  it("every reference belongs to a row", function()
    for _, t in ipairs {R.e, R.r, S.cases, S.elsewhere} do
      for name in pairs(t) do assert.is_table(T.rows[name], name) end
    end
  end)
  it("every row has its sentence", function()
    for row in T.each "ER" do
      assert.is_truthy(row.doc:find "%.$", row.name)
    end
  end)
end)
