-- Random programs of numbers, made of what limn.script rewrites: `if`,
-- `while`, `repeat`, `for`, `break`, `return`, `and`, `or`, `not` and
-- comparisons, nested.
-- Values stay whole and below 7, so that every device computes them exactly.
local M = {}

local G = {} -- a generator: {random, lines, depth, budget, extra, count}
G.__index = G

function G:upto(n) return 1 + math.floor(self.random() * n) end
function G:one_of(list) return list[self:upto(#list)] end

function G:put(text)
  self.lines[#self.lines + 1] = ("  "):rep(self.depth + 1) .. text
end

function G:variable() return self:one_of {"a", "b", "c", "d"} end

function G:atom()
  local k = self:upto(6)
  if k <= 4 then return self:variable() end
  if k == 5 and #self.extra > 0 then return self:one_of(self.extra) end
  return tostring(self:upto(7) - 1)
end

function G:value()
  if self:upto(4) == 1 then return self:atom() end
  return ("(%s %s %s) %% 7"):format(self:atom(), self:one_of {"+", "*", "-"},
    self:atom())
end

function G:comparison()
  return ("%s %s %s"):format(self:atom(),
    self:one_of {"<", "<=", ">", ">=", "==", "~="}, self:value())
end

function G:condition()
  local k = self:upto(8)
  if k == 1 then return self:comparison() .. " and " .. self:comparison() end
  if k == 2 then return self:comparison() .. " or " .. self:comparison() end
  if k == 3 then return "not (" .. self:comparison() .. ")" end
  return (self:comparison())
end

-- A counter of its own keeps a loop from running for ever.
function G:counter()
  self.count = self.count + 1
  return "n" .. self.count
end

local S = {} -- statements; `loop`: inside one

function S.assign(g)
  g:put(("%s = %s"):format(g:variable(), g:value()))
end

function S.assign_two(g)
  g:put(("a, b = %s, %s"):format(g:value(), g:value()))
end

function S.choose(g)
  g:put(("%s = %s and %s or %s"):format(g:variable(), g:comparison(),
    g:value(), g:value()))
end

function S.local_(g)
  local n = "t" .. g:upto(100)
  g:put(("local %s = %s"):format(n, g:value()))
  g:put(("%s = (%s + %s) %% 7"):format(g:variable(), n, n))
end

S["if"] = function(g, loop)
  g:put("if " .. g:condition() .. " then")
  g:block(loop)
  if g:upto(3) == 1 then
    g:put("elseif " .. g:condition() .. " then")
    g:block(loop)
  end
  if g:upto(2) == 1 then
    g:put "else"
    g:block(loop)
  end
  g:put "end"
end

S["while"] = function(g)
  local n = g:counter()
  g:put(("local %s = 0"):format(n))
  g:put(("while %s < %d and (%s) do"):format(n, g:upto(3), g:condition()))
  g:put(("  %s = %s + 1"):format(n, n))
  g:block(true)
  g:put "end"
end

S["repeat"] = function(g)
  local n = g:counter()
  g:put(("local %s = 0"):format(n))
  g:put "repeat"
  g:put(("  %s = %s + 1"):format(n, n))
  g:block(true)
  g:put(("until %s > %d or %s"):format(n, g:upto(2), g:comparison()))
end

S["for"] = function(g)
  local i = g:counter()
  local limit = g:upto(2) == 1 and tostring(g:upto(3)) or g:variable() .. " % 4"
  g:put(("for %s = 1, %s do"):format(i, limit))
  g.extra[#g.extra + 1] = i
  g:block(true)
  g.extra[#g.extra] = nil
  g:put "end"
end

local kinds = {"assign", "assign", "assign", "assign_two", "if", "if", "if",
  "while", "for", "repeat", "choose", "local_"}

function G:statement(loop)
  self.budget = self.budget - 1
  local kind = self:one_of(kinds)
  if self.budget < 0 or self.depth > 3 then kind = "assign" end
  S[kind](self, loop)
end

function G:block(loop)
  self.depth = self.depth + 1
  for _ = 1, self:upto(3) do self:statement(loop) end
  if self:upto(5) == 1 then
    if loop and self:upto(2) == 1 then
      self:put "break"
    else
      self:put(("return %s, %s, %s"):format(self:variable(), self:variable(),
        self:variable()))
    end
  end
  self.depth = self.depth - 1
end

-- The text of a function of two numbers that gives three.
function M.program(random)
  local g = setmetatable({random = random, lines = {}, depth = 0, budget = 14,
    extra = {}, count = 0}, G)
  g.lines[1] = "return function(a, b)"
  g:put "local c, d = 3, 0"
  for _ = 1, 1 + g:upto(4) do g:statement(false) end
  g:put "return a, b, c"
  g.lines[#g.lines + 1] = "end"
  return table.concat(g.lines, "\n")
end

return M
