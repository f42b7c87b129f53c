-- The parser of limn.script: the whole grammar of Lua 5.1 and LuaJIT, by
-- recursive descent.
--
-- A node is {kind, first, last, kids}: first and last are positions in the
-- list of tokens, kids its nodes in the order of the text, so that whoever
-- prints it can copy what it does not change. What a kind has beyond that
-- stands where it is made. A block may be empty: last is then first - 1.
local lexer = require "limn.script.lexer"

local M = {}
local P = {} -- methods of a parser: {tokens =, at =}
P.__index = P

-- -- Tokens ---------------------------------------------------------------

function P:peek(k) return self.tokens[self.at + (k or 0)] end

function P:fail(message)
  local t = self:peek()
  lexer.fail(t.line, message .. " near '" .. t.text .. "'")
end

-- Is the next token this keyword or operator?
function P:is(text)
  local t = self.tokens[self.at]
  return t.text == text and (t.type == "keyword" or t.type == "op")
end

function P:accept(text)
  if not self:is(text) then return false end
  self.at = self.at + 1
  return true
end

function P:expect(text, opened)
  if self:accept(text) then return self.at - 1 end
  local where = opened and self.tokens[opened]
  self:fail("'" .. text .. "' expected" .. (where
    and (" (to close '%s' at line %d)"):format(where.text, where.line) or ""))
end

-- The position of the name that must come next.
function P:name()
  if self:peek().type ~= "name" then self:fail "<name> expected" end
  self.at = self.at + 1
  return self.at - 1
end

function P:text(i) return self.tokens[i].text end

local function node(kind, first, kids)
  return {kind = kind, first = first, kids = kids or {}}
end

-- Complete a node: it ends with the token before the next.
function P:close(n)
  n.last = self.at - 1
  return n
end

-- -- Expressions ----------------------------------------------------------

-- {binding to the left, to the right}; right below left: right associative.
local binary = {
  ["or"] = {1, 1}, ["and"] = {2, 2}, ["<"] = {3, 3}, [">"] = {3, 3},
  ["<="] = {3, 3}, [">="] = {3, 3}, ["~="] = {3, 3}, ["=="] = {3, 3},
  [".."] = {5, 4}, ["+"] = {6, 6}, ["-"] = {6, 6}, ["*"] = {7, 7},
  ["/"] = {7, 7}, ["%"] = {7, 7}, ["^"] = {10, 9},
}
local unary_binding = 8
local most_levels = 190 -- as LuaJIT's own limit on nesting

function P:deeper()
  self.level = self.level + 1
  if self.level > most_levels then self:fail "too many levels of nesting" end
end

-- One or more expressions between commas.
function P:expressions()
  local list = {}
  repeat list[#list + 1] = self:expression() until not self:accept ","
  return list
end

-- {names =, vararg =, method =, body =, params =, close =, defined =}: names
-- are positions of parameters, params and close those of the parentheses.
function P:function_body(first, method)
  local f = node("function", first)
  local open = self:expect "("
  f.names, f.method = {}, method
  f.defined = first == open - 1 and open or first -- LuaJIT's linedefined
  if not self:is ")" then
    repeat
      if self:accept "..." then
        f.vararg = true
        break
      end
      f.names[#f.names + 1] = self:name()
    until not self:accept ","
  end
  f.params = open -- its parameters begin after this token
  f.close = self:expect(")", open)
  f.body = self:block()
  f.kids[1] = f.body
  self:expect("end", first)
  return self:close(f)
end

-- {items = of {key =, value =}}; key is a node for [k], a position for a name.
function P:table_constructor()
  local t = node("table", self.at)
  t.items = {}
  local open = self:expect "{"
  while not self:is "}" do
    local item = {}
    if self:accept "[" then
      item.key = self:expression()
      t.kids[#t.kids + 1] = item.key
      self:expect "]"
      self:expect "="
    elseif self:peek().type == "name" and self:peek(1).text == "="
      and self:peek(1).type == "op" then
      item.name = self:name()
      self:expect "="
    end
    item.value = self:expression()
    t.kids[#t.kids + 1] = item.value
    t.items[#t.items + 1] = item
    if not self:accept "," and not self:accept ";" then break end
  end
  self:expect("}", open)
  return self:close(t)
end

-- Appends the arguments of a call to n.kids.
function P:arguments(n)
  local t = self:peek()
  n.args = {}
  if t.type == "string" then
    self.at = self.at + 1
    n.args[1] = node("string", self.at - 1)
    self:close(n.args[1])
  elseif self:is "{" then
    n.args[1] = self:table_constructor()
  else
    local open = self:expect "("
    if not self:is ")" then n.args = self:expressions() end
    self:expect(")", open)
  end
  for _, a in ipairs(n.args) do n.kids[#n.kids + 1] = a end
end

function P:starts_arguments()
  return self:is "(" or self:is "{" or self:peek().type == "string"
end

-- A name or an expression in parentheses.
function P:primary()
  local first = self.at
  if self:accept "(" then
    local n = node("paren", first, {self:expression()})
    n.value = n.kids[1]
    self:expect(")", first)
    return self:close(n)
  elseif self:peek().type == "name" then
    local n = node("name", self:name())
    n.name = self:text(first)
    return self:close(n)
  end
  self:fail "unexpected symbol"
end

-- A primary expression with all that is done to it: .k [k] (args) :m(args)
function P:suffixed()
  local e = self:primary()
  while true do
    local first = e.first
    if self:accept "." then
      e = node("field", first, {e})
      e.base, e.name = e.kids[1], self:text(self:name())
    elseif self:is "[" then
      local open = self:expect "["
      e = node("index", first, {e, self:expression()})
      e.base, e.key = e.kids[1], e.kids[2]
      self:expect("]", open)
    elseif self:is ":" then
      self:accept ":"
      e = node("method", first, {e})
      e.base, e.name = e.kids[1], self:text(self:name())
      self:arguments(e)
    elseif self:starts_arguments() then
      e = node("call", first, {e})
      e.callee = e.kids[1]
      self:arguments(e)
    else
      return e
    end
    self:close(e)
  end
end

local simple = {["nil"] = "nil", ["true"] = "true", ["false"] = "false",
  ["..."] = "vararg"}

function P:simple()
  local t, first = self:peek(), self.at
  local kind = t.type == "number" and "number"
    or t.type == "string" and "string" or self:is(t.text) and simple[t.text]
  if kind then
    self.at = first + 1
    return self:close(node(kind, first))
  elseif self:is "{" then
    return (self:table_constructor())
  elseif self:accept "function" then
    return (self:function_body(first))
  end
  return (self:suffixed())
end

-- An expression whose operators all bind tighter than `limit`.
function P:expression(limit)
  self:deeper()
  local first = self.at
  local e
  if self:is "not" or self:is "-" or self:is "#" then
    local op = self:text(first)
    self.at = first + 1
    e = node("unary", first, {self:expression(unary_binding)})
    e.op, e.value = op, e.kids[1]
    self:close(e)
  else
    e = self:simple()
  end
  while true do
    local op = self:peek().text
    local binding = self:is(op) and binary[op]
    if not binding or binding[1] <= (limit or 0) then break end
    local at = self.at
    self.at = at + 1
    e = node("binary", first, {e, self:expression(binding[2])})
    e.op, e.at, e.a, e.b = op, at, e.kids[1], e.kids[2]
    self:close(e)
  end
  self.level = self.level - 1
  return e
end

-- -- Statements -----------------------------------------------------------

local S = {} -- by keyword

-- {clauses = of {cond =, body =, at =}, orelse = block or nil, ends =}
S["if"] = function(self)
  local n = node("if", self.at)
  n.clauses = {}
  repeat
    local c = {at = self.at} -- of `if` or `elseif`
    self.at = self.at + 1
    c.cond = self:expression()
    c.ends = self:expect "then"
    c.body = self:block()
    n.clauses[#n.clauses + 1] = c
    n.kids[#n.kids + 1] = c.cond
    n.kids[#n.kids + 1] = c.body
  until not self:is "elseif"
  if self:is "else" then
    n.else_at = self:expect "else"
    n.orelse = self:block()
    n.kids[#n.kids + 1] = n.orelse
  end
  self:expect("end", n.first)
  return n
end

S["while"] = function(self)
  local n = node("while", self:expect "while")
  n.cond = self:expression()
  n.opens = self:expect "do"
  n.body = self:block()
  n.kids = {n.cond, n.body}
  self:expect("end", n.first)
  return n
end

S["repeat"] = function(self)
  local n = node("repeat", self:expect "repeat")
  n.body = self:block()
  n.closes = self:expect("until", n.first)
  n.cond = self:expression()
  n.kids = {n.body, n.cond}
  return n
end

S["do"] = function(self)
  local n = node("do", self:expect "do")
  n.body = self:block()
  n.kids = {n.body}
  self:expect("end", n.first)
  return n
end

-- "fornum": {names = {i}, exprs = {first, last, step}}; "forin": likewise.
S["for"] = function(self)
  local n = node("fornum", self:expect "for")
  n.names = {self:name()}
  if self:accept "=" then
    n.exprs = self:expressions()
    if #n.exprs < 2 then self:fail "',' expected" end
    if #n.exprs > 3 then self:fail "'do' expected" end
  else
    n.kind = "forin"
    while self:accept "," do n.names[#n.names + 1] = self:name() end
    n.in_at = self:expect "in"
    n.exprs = self:expressions()
  end
  n.opens = self:expect "do"
  n.body = self:block()
  for i, e in ipairs(n.exprs) do n.kids[i] = e end
  n.kids[#n.kids + 1] = n.body
  self:expect("end", n.first)
  return n
end

-- {target =, func =}: the target is a name or fields of one.
S["function"] = function(self)
  local n = node("funcstat", self:expect "function")
  local target = node("name", self:name())
  target.name = self:text(target.first)
  self:close(target)
  local method = false
  while self:is "." or self:is ":" do
    method = self:is ":"
    self.at = self.at + 1
    target = node("field", target.first, {target})
    target.base, target.name = target.kids[1], self:text(self:name())
    self:close(target)
    if method then break end
  end
  n.target, n.func = target, self:function_body(n.first, method)
  n.func.first = n.func.params -- its name comes between
  n.kids = {n.target, n.func}
  return n
end

-- "local": {names =, exprs =}; "localfunc": {names = {f}, func =}
S["local"] = function(self)
  local n = node("local", self:expect "local")
  if self:is "function" then
    local at = self:expect "function"
    n.kind, n.names = "localfunc", {self:name()}
    n.func = self:function_body(at)
    n.func.first, n.func.defined = n.func.params, n.names[1]
    n.kids = {n.func}
    return n
  end
  n.names, n.exprs = {}, {}
  repeat n.names[#n.names + 1] = self:name() until not self:accept ","
  if self:accept "=" then n.exprs = self:expressions() end
  for i, e in ipairs(n.exprs) do n.kids[i] = e end
  return n
end

S["return"] = function(self)
  local n = node("return", self:expect "return")
  n.exprs = {}
  if not self:block_ends() and not self:is ";" then
    n.exprs = self:expressions()
  end
  for i, e in ipairs(n.exprs) do n.kids[i] = e end
  return n
end

S["break"] = function(self) return node("break", self:expect "break") end

S["::"] = function(self)
  local n = node("label", self:expect "::")
  n.name = self:text(self:name())
  self:expect("::", n.first)
  return n
end

S[";"] = function(self) return node("empty", self.at) end

local function jump(self)
  local n = node("goto", self:name())
  n.name = self:text(self:name())
  return n
end

-- A call, or an assignment {targets =, exprs =, at = of its "="}.
local function expression_statement(self)
  local e = self:suffixed()
  if self:is "," or self:is "=" then
    local n = node("assign", e.first, {e})
    n.targets, n.exprs = {e}, {}
    while self:accept "," do n.targets[#n.targets + 1] = self:suffixed() end
    for _, t in ipairs(n.targets) do
      if t.kind ~= "name" and t.kind ~= "field" and t.kind ~= "index" then
        self:fail "syntax error"
      end
    end
    n.at = self:expect "="
    n.exprs = self:expressions()
    n.kids = {}
    for _, list in ipairs {n.targets, n.exprs} do
      for _, k in ipairs(list) do n.kids[#n.kids + 1] = k end
    end
    return n
  elseif e.kind ~= "call" and e.kind ~= "method" then
    self:fail "syntax error"
  end
  local n = node("callstat", e.first, {e})
  n.call = e
  return n
end

function P:block_ends()
  local t = self:peek()
  return t.type == "eof" or t.type == "keyword" and (t.text == "end"
    or t.text == "else" or t.text == "elseif" or t.text == "until")
end

-- A statement, with the ";" that may follow it.
function P:statement()
  local t = self:peek()
  local n
  if t.type == "name" and t.text == "goto" and self:peek(1).type == "name" then
    n = jump(self)
  elseif S[t.text] and (t.type == "keyword" or t.type == "op") then
    n = S[t.text](self)
  else
    n = expression_statement(self)
  end
  n.stop = self.at - 1 -- its last token before the ";"
  self:accept ";"
  return self:close(n)
end

function P:block()
  self:deeper()
  local b = node("block", self.at)
  while not self:block_ends() do
    local s = self:statement()
    b.kids[#b.kids + 1] = s
    if s.kind == "return" then break end
  end
  self.level = self.level - 1
  return self:close(b)
end

-- The tree of a source text, and its tokens. Raises {line =, message =}.
-- The root is a "function" with only a body.
function M.parse(source)
  local tokens = lexer.tokens(source)
  local p = setmetatable({tokens = tokens, at = 1, level = 0}, P)
  local root = node("function", 1)
  root.names, root.vararg = {}, true
  root.body = p:block()
  root.kids = {root.body}
  if p:peek().type ~= "eof" then p:fail "'<eof>' expected" end
  return p:close(root), tokens
end

return M
