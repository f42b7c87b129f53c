-- Writes tokens back as text, each on the line where it stood.
local M = {}
M.__index = M

function M.new(tokens, line)
  return setmetatable({tokens = tokens, line = line, out = {}}, M)
end

-- Go on at the line of token i, if that is further down.
function M:at(i)
  local line = self.tokens[i].line
  if line > self.line then
    self.out[#self.out + 1] = ("\n"):rep(line - self.line)
    self.line = line
  end
end

-- Text of our own; it stays on the line that was reached.
function M:put(text)
  self.out[#self.out + 1] = text
  self.out[#self.out + 1] = " "
end

-- Tokens from..to as they are.
function M:copy(from, to)
  for i = from, to do
    self:at(i)
    self:put(self.tokens[i].text)
    self.line = self.tokens[i].last
  end
end

function M:text() return table.concat(self.out) end

return M
