-- Faults of runs inside loops: their messages name the step.
local U = require "support.util"
local limn = U.limn

-- f raises each of these on every device, in eager code and traced, and when
-- the kernels of a run are launched together (from the third run on).
local function says(f, example, bad, ...)
  local g = limn.trace(f, example)
  local patterns = {...}
  U.each_device(function(dev)
    local x = bad:to(dev)
    local function read(h)
      local y = h(x)
      return y:sum():item()
    end
    for _, h in ipairs {f, g, g, g, limn.jit(f)} do
      local e = U.message(function() read(h) end, unpack(patterns))
      assert(not e:find "around it.*around it", e)
    end
    assert.is_true(g(example:to(dev)):sum():item() == f(example):sum():item())
  end)
end

describe("A fault inside a loop", function()
  local function look(table, rows)
    local y = limn.scan(function(sum, i)
      local row = table[i:reshape(1)]:sum()
      return sum + row
    end, table:new_zeros(), rows)
    return y
  end

  local function places(t)
    return (limn.arange(4):to(t.device))
  end

  it("names the step of a scan", function()
    says(function(rows)
      local y = look(places(rows), rows)
      return y
    end, limn.tensor({1, 4}, "int64"), limn.tensor({2, 3, 5, 9}, "int64"),
      "index 5 at position 1 is out of range", "\n  in step 3 of the loop$")
  end)

  it("names the steps of loops in loops, the innermost first", function()
    says(function(m)
      local y = limn.scan(function(sum, rows)
        local more = look(places(m), rows)
        return sum + more
      end, limn.zeros(m.device), m)
      return y
    end, limn.ones(1, 1, "int64"),
      limn.tensor({{1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {1, 0, 2}}, "int64"),
      "index 0 at",
      "\n  in step 2 of the loop, in step 4 of the loop around it$")
  end)

  it("names the step of a while loop, and of map, past a cond", function()
    says(function(rows)
      local _, y = limn.while_loop(function(i) return i:le(rows:size(1)) end,
        function(i, y)
          local now = limn.cond(i:gt(1), function()
            local j = rows[i:reshape(1):to "int64"]
            return y + places(rows)[j]:sum()
          end, function() return y end)
          return i + 1, now
        end, limn.ones(rows.device), 0)
      return y
    end, limn.tensor({1, 4}, "int64"), limn.tensor({2, 3, 4, 7}, "int64"),
      "index 7 at", "\n  in step 4 of the loop$")
    says(function(rows)
      local y = limn.map(function(i)
        return places(rows)[i:reshape(1)]
      end, rows)
      return y
    end, limn.tensor({1, 4}, "int64"), limn.tensor({2, -7}, "int64"),
      "index %-7", "\n  in step 2 of the loop$")
  end)

  it("in a gradient has the step of the loop that it is the gradient of",
     function()
    local function f(x)
      local y = limn.scan(function(c, v)
        local r = v:sqrt()
        return c + r
      end, limn.zeros(x.device), x)
      return y
    end
    local g = limn.trace(limn.grad(f), limn.ones(2))
    local was = limn.debug {nan = true}
    local ok, e = pcall(U.each_device, function(dev)
      local x = limn.tensor({4, 1, 0, 1}, dev)
      U.message(function() g(x) end, "makes infinity", "in step 3 of the loop")
    end)
    limn.debug(was)
    if not ok then error(e, 0) end
  end)

  it("counts the steps of loops that eager code runs as Lua would, and not "
     .. "after them", function()
    U.each_device(function(dev)
      local table = limn.arange(4):to(dev)
      local i = limn.tensor({5}, "int64", dev)
      local function read() return table[i]:sum():item() end
      local function turn(n)
        limn.while_loop(function(k) return k:lt(n) end, function(k)
          if k:item() == n - 1 then read() end
          return k + 1
        end, 0)
      end
      U.message(function() turn(3) end, "index 5", "in step 3 of the loop$")
      local e = U.message(read, "index 5")
      assert.is_nil(e:find "step")
      U.message(function()
        limn.map(function() turn(2) end, limn.ones(1))
      end, "step 2 of the loop, in step 1 of the loop around it")
    end)
  end)

  it("of a matrix names the step too", function()
    local function f(ms)
      local y = limn.map(function(m)
        local inverse = limn.linalg.inv(m)
        return inverse
      end, ms)
      return y
    end
    local g = limn.trace(f, limn.ones(2, 2, 2))
    local ms = limn.eye(2):reshape(1, 2, 2):expand(3, 2, 2):clone()
    ms[2] = 0
    for _, h in ipairs {f, g} do
      U.message(function() h(ms) end, "the matrix is singular",
                "\n  in step 2 of the loop\nhint: ")
    end
  end)
end)
