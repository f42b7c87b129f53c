-- A pole on a cart, kept upright by a policy that learns from its own falls:
--   luajit examples/cartpole.lua [--device NAME] [--seed N] [--quick]
-- The world is made of tensors too, so one graph looks, acts and moves 64
-- carts. The policy gradient is REINFORCE (Williams 1992).
local here = arg[0]:match "(.*/)" or "./"
package.path = here .. "../lua/?.lua;" .. here .. "../lua/?/init.lua;"
  .. package.path
package.cpath = here .. "../build/?.so;" .. package.cpath

io.stdout:setvbuf "line"

local limn = require "limn"
local nn, optim = limn.nn, limn.optim

local options = {device = limn.accelerator(), seed = 1}
for key, value in table.concat(arg, " "):gmatch "%-%-(%a+) ?([^ -]*)" do
  options[key] = value
end
local device = options.device
local solved = options.quick and 100 or 475 -- of 500 steps
limn.manual_seed(tonumber(options.seed))

-- 1. The world (Barto, Sutton and Anderson 1983): a cart of 1 kg, a pole of
-- 0.1 kg and 1 m, pushed by 10 N to the right (1) or left (0) for 0.02 s. Rows
-- of a state: place, speed, angle from upright, and how fast it turns.
local limit, steps = {place = 2.4, angle = math.rad(12)}, 500

local function new_carts(n) return limn.rand(n, 4, device) * 0.1 - 0.05 end

local function stand(state)
  return limn.logical_and(state[{{}, 1}]:abs():le(limit.place),
                          state[{{}, 3}]:abs():le(limit.angle))
end

local function move(state, right)
  local place, speed, angle, turn = unpack(state:unbind(2))
  local sin, cos = angle:sin(), angle:cos()
  local push = (right * 20 - 10 + 0.05 * turn:square() * sin) / 1.1
  local twist = (9.8 * sin - push * cos)
    / (0.5 * (4 / 3 - 0.1 * cos:square() / 1.1))
  local pull = push - 0.05 * twist * cos / 1.1
  return limn.stack({place + 0.02 * speed, speed + 0.02 * pull,
                     angle + 0.02 * turn, turn + 0.02 * twist}, 2)
end

-- 2. The policy: how much it wants to push to the right, in log odds.
local policy = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 1),
                             nn.Flatten(1))
print(policy)

local act = limn.trace(function(state)
  local p = policy(state):sigmoid()
  local right = limn.rand_like(p):lt(p):to "float32"
  return right, move(state, right)
end, limn.zeros(2, 4))

-- 3. One round: carts run until all have fallen. What each choice was worth is
-- the time that followed it, later steps counting less.
local function play(carts)
  local states, rights, up = {}, {}, {}
  local state, alive = new_carts(carts), limn.ones(carts, device)
  while #states < steps and alive:any():item() do
    local n = #states + 1
    states[n], up[n] = state, alive
    rights[n], state = act(state)
    alive = alive * stand(state)
  end
  local worth, after = {}, limn.zeros(carts, device)
  for n = #states, 1, -1 do
    after = (after * 0.98 + 1) * up[n]
    worth[n] = after
  end
  up, worth = limn.cat(up), limn.cat(worth)
  return limn.cat(states), limn.cat(rights), up, worth, up:sum():item() / carts
end

-- 4. Choices that were worth more than the mean become likelier.
local opt = optim.Adam(policy, {lr = 0.01})
local loss = limn.value_and_grad(function(state, right, gain)
  return nn.binary_cross_entropy_with_logits(policy(state), right,
                                             {weight = gain})
end, policy)
local learn = limn.jit(function(state, right, up, worth)
  local gain = worth - (worth * up):sum() / up:sum()
  local l, grads = loss(state, right, gain / gain:std() * up)
  opt:step(grads)
  return l
end)

-- 5. Until practice goes well; then 100 new carts tell.
local started, round, practice = limn.data.seconds(), 0, 0
local enough = options.quick and 150 or 495
while practice < enough do
  local states, rights, up, worth
  states, rights, up, worth, practice = play(64)
  learn(states, rights, up, worth)
  round = round + 1
  if round % 10 == 0 or practice >= enough then
    print(("round %3d: %.1f steps"):format(round, practice))
  end
  assert(round < 1000, "nothing is learnt")
end
print(("trained on %s for %.1f s"):format(device,
                                          limn.data.seconds() - started))
local score = select(5, play(100))
print(("100 new carts stand for %.1f steps"):format(score))
assert(score >= solved, "less than " .. solved .. " steps")
