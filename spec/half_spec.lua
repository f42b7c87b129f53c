-- float16 and bfloat16: what is made of several ops is computed in float32 and
-- rounded once. Each case is compared with the same function of the same
-- numbers as float32, on inputs whose squares or sums float16 cannot hold.
local U = require "support.util"
local limn = U.limn
local nn = limn.nn

local function numbers(n, scale, shift)
  local r, out = U.random(n), {}
  for i = 1, n do out[i] = (2 * r() - 1) * scale + (shift or 0) end
  return out
end

local function tensor(shape, scale, shift)
  local y = U.tensor(numbers(U.numel(shape), scale, shift), shape)
  return y
end

-- Name, inputs, f, and whether it is several compositions, each of which is
-- rounded. The inputs' numbers fit float16; 300 squared does not.
local big = {6, 64}
local cases = {
  {"mean", {tensor(big, 200, 400)}, function(x) return x:mean() end},
  {"mean over a dim", {tensor(big, 200, 3000)},
   function(x) return x:mean(2) end},
  {"var", {tensor({2, 3000}, 200)}, function(x) return x:var(2) end},
  {"std", {tensor(big, 30000)}, function(x) return x:std(2) end},
  {"norm", {tensor(big, 900)}, function(x) return x:norm(2, 2) end},
  {"norm of p = 3", {tensor(big, 90)}, function(x) return x:norm(3, 2) end},
  {"logsumexp", {tensor({70000}, 0.01)},
   function(x) return x:logsumexp(1) end},
  {"softmax", {tensor({2, 3000}, 3)}, function(x) return x:softmax(2) end},
  {"log_softmax", {tensor({2, 600}, 1)},
   function(x) return x:log_softmax(2) end},
  {"layer_norm", {tensor(big, 900), tensor({64}, 1, 1), tensor({64}, 1)},
   function(x, w, b)
     local y = nn.layer_norm(x, {weight = w, bias = b})
     return y
   end},
  {"rms_norm", {tensor(big, 900), tensor({64}, 1, 1)},
   function(x, w) return nn.rms_norm(x, {weight = w}) end},
  {"group_norm", {tensor({2, 4, 8}, 900), tensor({4}, 1, 1), tensor({4}, 1)},
   function(x, w, b)
     local y = nn.group_norm(x, {groups = 2, weight = w, bias = b})
     return y
   end},
  {"instance_norm", {tensor({2, 4, 8}, 900), tensor({4}, 1, 1)},
   function(x, w) return nn.instance_norm(x, {weight = w}) end},
  {"batch_norm", {tensor({16, 4, 8}, 900), tensor({4}, 1, 1)},
   function(x, w)
     local y = nn.batch_norm(x, {training = true, weight = w})
     return y
   end},
  {"avg_pool1d", {tensor({2, 3, 12}, 5000, 25000)},
   function(x) return nn.avg_pool1d(x, 4) end},
  {"avg_pool2d", {tensor({1, 2, 6, 6}, 5000, 25000)},
   function(x)
     local y = nn.avg_pool2d(x, 3, {stride = 2, padding = 1,
                                    count_include_pad = false})
     return y
   end},
  {"adaptive_avg_pool1d", {tensor({1, 2, 7}, 5000, 50000)},
   function(x) return nn.adaptive_avg_pool1d(x, 3) end},
  {"interpolate", {tensor({1, 2, 4, 4}, 500, 60000)},
   function(x)
     local y = nn.interpolate(x, {size = {7, 5}, mode = "bilinear"})
     return y
   end},
  {"mse_loss", {tensor(big, 250), tensor(big, 250)},
   function(x, y) return nn.mse_loss(x, y) end},
  {"l1_loss", {tensor(big, 2000), tensor(big, 2000)},
   function(x, y) return nn.l1_loss(x, y) end},
  {"huber_loss", {tensor(big, 2000), tensor(big, 2000)},
   function(x, y) return nn.huber_loss(x, y, {delta = 10}) end},
  {"smooth_l1_loss", {tensor(big, 2000), tensor(big, 2000)},
   function(x, y) return nn.smooth_l1_loss(x, y) end},
  {"bce_with_logits", {tensor(big, 900), tensor(big, 0.5, 0.5)},
   function(x, y) return nn.bce_with_logits(x, y) end},
  {"binary_cross_entropy", {tensor(big, 0.3, 0.5), tensor(big, 0.5, 0.5)},
   function(x, y) return nn.binary_cross_entropy(x, y) end},
  {"cross_entropy", {tensor({3000, 8}, 60)},
   function(x)
     local t = limn.arange(0, 2999, {dtype = "int64", device = x.device}) % 8
     local y = nn.cross_entropy(x, t + 1, {label_smoothing = 0.1})
     return y
   end},
  {"kl_div", {tensor(big, 900), tensor(big, 0.5, 0.6)},
   function(x, y) return nn.kl_div(x, y, {reduction = "batchmean"}) end},
  {"cosine_similarity", {tensor(big, 900), tensor(big, 900)},
   function(x, y) return nn.cosine_similarity(x, y) end},
  {"prod", {tensor({4, 3}, 10, 30)}, function(x) return x:prod(2) end},
  {"cumprod", {tensor({4, 3}, 10, 25)}, function(x) return x:cumprod(2) end},
  {"gelu", {tensor(big, 4)}, function(x) return x:gelu() end},
  {"rsqrt", {tensor({8}, 2e-5, 5e-5)}, function(x) return x:rsqrt() end},
  {"mish", {tensor(big, 4)}, function(x) return x:mish() end},
  {"conv1d", {tensor({1, 40, 6}, 30), tensor({2, 40, 3}, 30)},
   function(x, w) return nn.conv1d(x, w) end},
  {"matmul", {tensor(big, 20), tensor({64, 5}, 20)},
   function(x, w) return x:matmul(w) end},
  {"attention", {tensor({1, 8, 64}, 40), tensor({1, 8, 64}, 40),
                 tensor({1, 8, 16}, 5)},
   function(q, k, v)
     local y = nn.scaled_dot_product_attention(q, k, v)
     return y
   end, true},
}

-- One unit in the last place, of what float32 gives.
local unit = {float16 = 2 ^ -10, bfloat16 = 2 ^ -7}

-- Weighted by sixteenths, so that nothing but f's own gradient is rounded.
local function weighted(f)
  return function(...)
    local y = f(...):to "float32"
    local w = limn.arange(1, y:numel(), {device = y.device}) % 16 / 16
    y = (y * w:reshape(y.shape)):sum()
    return y
  end
end

local function inputs(case, dtype, dev)
  local half, wide = {}, {}
  for i, x in ipairs(case[2]) do
    half[i] = x:to(dtype):to(dev)
    wide[i] = half[i]:to "float32"
  end
  return half, wide
end

local function compare(got, want, dtype, what)
  local y = U.flat(want:to(dtype):to "float32")
  U.close(got:to "float32", y, unit[dtype], 1e-3, what)
end

-- A gradient is computed from a rounded result and a rounded cotangent, and
-- what cancels leaves the error of the largest; float16 ends at 2^-24.
local function compare_gradient(got, want, dtype, what)
  local y = U.flat(want:to(dtype):to "float32")
  local scale = math.max(0.3 * want:abs():max():item(), 4e-5)
  U.close(got:to "float32", y, 8 * unit[dtype], scale, what)
end

describe("A composition of ops on halves", function()
  for _, case in ipairs(cases) do
    local name, f = case[1], case[3]
    it("is rounded once: " .. name, function()
      U.each_device(function(dev)
        local other = dev == "cpu" and "bfloat16" or nil
        for _, dtype in ipairs {"float16", other} do
          local half, wide = inputs(case, dtype, dev)
          local what = dtype .. " on " .. dev
          local got, want = f(unpack(half)), f(unpack(wide))
          assert.are.equal(dtype, got.dtype, what)
          local check = case[4] and compare_gradient or compare
          check(got, want, dtype, what)
          local traced = limn.trace(f, unpack(half))
          check(traced(unpack(half)), want, dtype, what .. ", traced")
          if not case[4] then
            local dgot = limn.grad(weighted(f))(unpack(half))
            local dwant = limn.grad(weighted(f))(unpack(wide))
            assert.are.equal(dtype, dgot.dtype, what)
            compare_gradient(dgot, dwant, dtype, what .. ", gradient")
          end
        end
      end)
    end)
  end

  it("leaves the running statistics of batch norm exact", function()
    U.each_device(function(dev)
      local x = tensor({16, 4, 8}, 900):to "float16":to(dev)
      local half, whole = nn.BatchNorm1d(4), nn.BatchNorm1d(4)
      half(x)
      whole(x:to "float32")
      U.close(half.running_mean, U.flat(whole.running_mean), 1e-5)
      U.close(half.running_var, U.flat(whole.running_var), 1e-5)
      assert.is_true(U.flat(half.running_var)[1] > 1e4)
    end)
  end)

  it("clips gradients by a norm that float16 does not hold", function()
    U.each_device(function(dev)
      local g = limn.full({300}, 300):to "float16":to(dev)
      local by, norm = limn.optim.clip_grad_norm({g = g}, 3)
      U.close(norm, {300 * math.sqrt(300)}, 1e-6)
      U.close(by.g, U.flat(limn.full({300}, 3 / math.sqrt(300))), 1e-3, 1e-3)
    end)
  end)
end)
