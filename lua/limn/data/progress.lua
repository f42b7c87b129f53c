-- A bar with rate and remaining time on stderr, and a wall clock.
local has_ffi, ffi = pcall(require, "ffi")

local M = {}

local clock = os.clock -- taken now: a trace replaces os.clock
local seconds = function() return os.time() end
local isatty = function() return false end
if has_ffi then
  pcall(ffi.cdef, [[
    typedef struct { long s, ns; } limn_timespec;
    int clock_gettime(int, limn_timespec *);
    int isatty(int);
  ]])
  local ok, now = pcall(ffi.new, "limn_timespec")
  if ok and pcall(function() return ffi.C.clock_gettime(1, now) end) then
    seconds = function()
      ffi.C.clock_gettime(1, now) -- CLOCK_MONOTONIC
      return tonumber(now.s) + tonumber(now.ns) * 1e-9
    end
  elseif not ok then
    seconds = clock
  end
  if pcall(function() return ffi.C.isatty(2) end) then
    isatty = function(fd) return ffi.C.isatty(fd) == 1 end
  end
end

--- data.seconds() -> number: wall-clock seconds from some start.
function M.seconds() return seconds() end

local function span(s)
  if s ~= s or s == math.huge then return "?" end
  s = math.floor(s + 0.5)
  if s < 60 then return s .. " s" end
  if s < 3600 then return string.format("%d:%02d", s / 60, s % 60) end
  return string.format("%d:%02d:%02d", s / 3600, s / 60 % 60, s % 60)
end

local Bar = {}
Bar.__index = Bar

--- data.progress(total [, {progress, label}]): a bar with rate and remaining
-- time on stderr: bar:step(n), bar:note(text), bar:close(). Silent where stderr
-- is no terminal, unless {progress = "always"} asks.
function M.progress(total, options)
  options = options or {}
  local show = options.progress == "always"
    or (options.progress ~= false and isatty(2))
  return setmetatable({total = total, done = 0, start = seconds(), last = -1,
                       show = show, label = options.label or "",
                       out = options.out or io.stderr, text = ""}, Bar)
end

function Bar:line()
  local part = self.total > 0 and self.done / self.total or 1
  local full = math.floor(part * 24)
  local passed = seconds() - self.start
  local rate = passed > 0 and self.done / passed or 0
  local s = string.format("%s%3d%% [%s%s] %d/%d", self.label == "" and ""
    or self.label .. " ", part * 100, ("="):rep(full), (" "):rep(24 - full),
    self.done, self.total)
  if rate > 0 then
    s = s .. string.format(rate < 10 and "  %.2g/s  " or "  %.0f/s  ", rate)
      .. (self.done < self.total and span((self.total - self.done) / rate)
          .. " left" or span(passed))
  end
  if self.text ~= "" then s = s .. "  " .. self.text end
  return s
end

-- Set how far things are; drawn ten times a second at most.
function Bar:update(done)
  self.done = done
  local now = seconds()
  if not self.show or (now - self.last < 0.1 and done < self.total) then
    return
  end
  self.last = now
  self.out:write("\r", self:line(), "\27[K")
  self.out:flush()
end

-- Text after the bar, such as the loss.
function Bar:note(text) self.text = text end

function Bar:finish()
  if self.show and not self.ended then
    self.last = -1
    self:update(self.done)
    self.out:write "\n"
    self.out:flush()
  end
  self.ended = true
end

return M
