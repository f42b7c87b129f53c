-- Losses. The prediction comes first, then the target, then options, of which
-- all have {reduction = "mean"}, "sum" or "none".
local core = require "limn.core"
local read_options = require "limn.options"
local D = require "limn.dims"
local wide = require "limn.wide"
local Module = require "limn.nn.module"

local limn = require "limn.lazy"

local M = {}

-- The options of each, besides the reduction.
local takes = {
  mse_loss = {}, l1_loss = {}, huber_loss = {"delta"},
  smooth_l1_loss = {"beta"}, bce_with_logits = {"weight", "pos_weight"},
  nll_loss = {"weight", "ignore_index"},
  cross_entropy = {"weight", "label_smoothing", "ignore_index"},
  binary_cross_entropy = {"weight"}, kl_div = {"log_target"},
}
for _, list in pairs(takes) do list[#list + 1] = "reduction" end
takes.cosine_similarity = {"dim", "eps"}
takes.pairwise_distance = {"p", "eps", "keepdim"}

-- The options of loss `name`, and its reduction; `who` is for messages.
local function options_of(given, name, who)
  who = who or name
  local o = read_options(given, takes[name], who)
  local r = o.reduction or "mean"
  if r ~= "mean" and r ~= "sum" and r ~= "none"
    and not (r == "batchmean" and name == "kl_div") then
    core.fail(who .. ": unknown reduction '" .. tostring(r) .. "'",
              name == "kl_div" and "mean, batchmean, sum or none"
                or "mean, sum or none")
  end
  return o, r
end

local function reduce(x, how)
  if how == "mean" then
    x = x:mean()
  elseif how == "sum" then
    x = x:sum()
  end
  return x
end

local function check(v, what, who)
  local kind = core.type(v)
  if kind ~= "tensor" and kind ~= "cell" then
    core.fail(("%s: the %s must be a tensor, not %s"):format(who, what,
      v == nil and "nil" or "a " .. (kind or type(v))))
  end
end

-- [8, 1] against [8] would broadcast to [8, 8]: hardly ever meant.
local function same_rank(x, y, who)
  check(x, "prediction", who)
  if type(y) ~= "number" then check(y, "target", who) end
  if type(y) ~= "number" and x:dim() ~= y:dim() then
    core.fail(who .. ": the prediction has " .. x:dim()
              .. " dims and the target " .. y:dim(),
              "reshape one, for instance with x:flatten()")
  end
  for i = 1, type(y) == "number" and 0 or x:dim() do
    local a, b = D.known(x:size(i)), D.known(y:size(i))
    if a and b and a ~= b and a ~= 1 and b ~= 1 then
      core.fail(("%s: the prediction has size %d in dim %d and the target %d")
        :format(who, a, i, b))
    end
  end
end

-- x, whose sizes (but that of the dim of the classes, if any) are those of y.
local function same_sizes(x, y, classes, who)
  local at = 0
  for i = 1, x:dim() do
    if i ~= classes then
      at = at + 1
      local a, b = x:size(i), y:size(at)
      local known = type(a) == "number" and type(b) == "number"
      x = D.expect(x, D.eq(a, b), known
        and ("%s: the prediction has size %d in dim %d and the target %d in "
             .. "dim %d"):format(who, a, i, b, at)
        or ("%s: the prediction and the target differ in size in dim %d")
             :format(who, i))
    end
  end
  return x
end

--- nn.mse_loss(x, target [, {reduction = "mean"}]), nn.MSELoss(options): the
-- squares of x - target, of one shape. The reduction is "mean", "sum" or
-- "none", here as in all losses.
function M.mse_loss(x, y, options)
  local _, r = options_of(options, "mse_loss")
  same_rank(x, y, "mse_loss")
  local l = reduce((x - y):square(), r)
  return l
end

--- nn.l1_loss(x, target [, {reduction}]), nn.L1Loss(options): |x - target|.
function M.l1_loss(x, y, options)
  local _, r = options_of(options, "l1_loss")
  same_rank(x, y, "l1_loss")
  local l = reduce((x - y):abs(), r)
  return l
end

--- nn.huber_loss(x, target [, {delta = 1, reduction}]), nn.HuberLoss(options):
-- half the square of x - target within delta, a line of slope delta beyond.
function M.huber_loss(x, y, options)
  local o, r = options_of(options, "huber_loss")
  same_rank(x, y, "huber_loss")
  local delta = o.delta or 1
  local d = (x - y):abs()
  local l = reduce(limn.where(d:lt(delta), d:square() * 0.5,
                              (d - 0.5 * delta) * delta), r)
  return l
end

--- nn.smooth_l1_loss(x, target [, {beta = 1, reduction}]),
-- nn.SmoothL1Loss(options): huber_loss over beta.
function M.smooth_l1_loss(x, y, options)
  local o, r = options_of(options, "smooth_l1_loss")
  same_rank(x, y, "smooth_l1_loss")
  local beta = o.beta or 1
  local d = (x - y):abs()
  if beta > 0 then
    d = limn.where(d:lt(beta), d:square() * (0.5 / beta), d - 0.5 * beta)
  end
  local l = reduce(d, r)
  return l
end

--- nn.bce_with_logits(x, target [, {weight, pos_weight, reduction}]),
-- nn.binary_cross_entropy_with_logits, nn.BCEWithLogitsLoss(options): binary
-- cross entropy of logits x with targets in 0..1; pos_weight is the weight of
-- positive targets, weight that of each value.
function M.bce_with_logits(x, y, options)
  local o, r = options_of(options, "bce_with_logits")
  same_rank(x, y, "bce_with_logits")
  if type(y) ~= "number" then x = same_sizes(x, y, nil, "bce_with_logits") end
  for _, k in ipairs {"weight", "pos_weight"} do
    if o[k] and type(o[k]) ~= "number" then
      check(o[k], k, "bce_with_logits")
    end
  end
  local l
  if o.pos_weight then
    l = (1 - y) * x - ((o.pos_weight - 1) * y + 1) * x:logsigmoid()
  else
    l = x:softplus() - x * y
  end
  if o.weight then l = l * o.weight end
  l = reduce(l, r)
  return l
end

-- The dim of the classes: the only one, or the second.
local function class_dim(x, who)
  check(x, "prediction", who)
  local n = x:dim()
  if n == 0 then
    core.fail(who .. ": the prediction is one number; one per class is needed")
  end
  return n == 1 and 1 or 2
end

-- What stands in x at each label, in the shape of the labels.
local function pick(x, labels, dim, who)
  check(labels, "list of labels", who)
  if labels:dim() ~= x:dim() - 1 then
    core.fail(who .. ": a prediction of " .. x:dim() .. " dims wants labels of "
              .. (x:dim() - 1) .. ", got " .. labels:dim(),
              "one whole number per row, counting from 1")
  end
  if not core.whole(labels) then
    core.fail(who .. ": labels are whole numbers, counting from 1; these have "
              .. "another dtype", 'convert them: labels:to "int64"')
  end
  x = same_sizes(x, labels, dim, who)
  local index = labels:unsqueeze(dim)
  local y = limn.gather(x, dim, index, {what = "label"})
  y = limn.reshape_like(y, labels)
  return y
end

-- Checks o.weight: nil, or one for each class of x.
local function class_weight(o, x, dim, who)
  local w = o.weight
  if w == nil then return end
  check(w, "weight", who)
  if w:dim() ~= 1 then
    core.fail(who .. ": the weight has " .. w:dim()
              .. " dims; it is a list with one per class")
  end
  local a, b = w:size(1), x:size(dim)
  o.weight = D.expect(w, D.eq(a, b), who .. ": "
    .. (type(a) == "number" and type(b) == "number"
        and ("the weight is of %d classes, the prediction of %d"):format(a, b)
        or "the weight and the prediction are of different classes"))
end

-- The weight of each label's class, in the shape of the labels.
local function weights(weight, labels)
  local w = limn.index_select(weight, 1, labels:flatten(),
                              {what = "label"})
  w = limn.reshape_like(w, labels)
  return w
end

-- Labels equal to `ignore` are left out: 1 in their stead, and what counts.
local function sift(labels, ignore)
  if ignore == nil then return labels end
  local counts = labels:ne(ignore)
  return limn.where(counts, labels, 1), counts
end

-- Per label losses l with their weights w and what counts (each may be nil).
local function reduce_labels(l, w, counts, how)
  if counts ~= nil then
    l = limn.where(counts, l, 0)
    if w ~= nil then w = limn.where(counts, w, 0) end
  end
  if how ~= "mean" or (w == nil and counts == nil) then
    l = reduce(l, how)
    return l
  end
  if w == nil then w = counts:to(l.dtype) end
  l = l:sum() / w:sum()
  return l
end

--- nn.nll_loss(x, labels [, {weight, ignore_index, reduction}]),
-- nn.NLLLoss(options): minus the log probability of each label. x holds log
-- probabilities as cross_entropy's x, labels are whole numbers from 1; weight
-- is [classes]; labels equal to ignore_index do not count.
function M.nll_loss(x, labels, options)
  local o, r = options_of(options, "nll_loss")
  local dim = class_dim(x, "nll_loss")
  class_weight(o, x, dim, "nll_loss")
  check(labels, "list of labels", "nll_loss")
  local counts, w
  labels, counts = sift(labels, o.ignore_index)
  local l = -pick(x, labels, dim, "nll_loss")
  if o.weight ~= nil then
    w = weights(o.weight, labels)
    l = l * w
  end
  l = reduce_labels(l, w, counts, r)
  return l
end

-- Class weights along dim of a tensor of that rank.
local function spread_weight(weight, x, dim)
  if dim == 1 then return weight end
  local n = x:dim()
  for _ = dim + 1, n do weight = weight:unsqueeze(-1) end
  return weight
end

-- Targets that are probabilities, in the shape of the prediction.
local function soft_cross_entropy(logp, target, dim, o, r)
  if o.smoothing > 0 then
    target = target * (1 - o.smoothing) + o.smoothing / logp:size(dim)
  end
  local l = logp * target
  if o.weight ~= nil then l = l * spread_weight(o.weight, logp, dim) end
  l = -l:sum(dim)
  l = reduce(l, r)
  return l
end

--- nn.cross_entropy(x, target [, {weight, label_smoothing = 0, ignore_index,
-- reduction}]), nn.CrossEntropyLoss(options): cross entropy of logits x:
-- [classes], [rows, classes] or [rows, classes, ...]. The target holds labels
-- that count from 1, without the dim of the classes, or probabilities in x's
-- shape. A label out of range is an error that names its row.
function M.cross_entropy(x, target, options)
  local o, r = options_of(options, "cross_entropy")
  local dim = class_dim(x, "cross_entropy")
  class_weight(o, x, dim, "cross_entropy")
  local s = o.label_smoothing or 0
  local logp = x:log_softmax(dim)
  check(target, "target", "cross_entropy")
  if target:dim() == x:dim() then
    logp = same_sizes(logp, target, nil, "cross_entropy")
    local l = soft_cross_entropy(logp, target, dim,
                                 {weight = o.weight, smoothing = s}, r)
    return l
  end
  local counts, w, smooth
  target, counts = sift(target, o.ignore_index)
  local l = -pick(logp, target, dim, "cross_entropy")
  if o.weight ~= nil then
    w = weights(o.weight, target)
    l = l * w
  end
  if s > 0 then
    smooth = logp
    if o.weight ~= nil then
      smooth = smooth * spread_weight(o.weight, logp, dim)
    end
    smooth = -smooth:sum(dim)
    l = l * (1 - s) + smooth * s / logp:size(dim)
  end
  l = reduce_labels(l, w, counts, r)
  return l
end

-- The logarithm of p, at least -100; q is 1 - p. Its slope is q / (p q), where
-- p q counts as at least 1e-12.
local function bounded_log(p, q)
  local inside = (p * q):ge(1e-12)
  local fixed, rest = p:detach(), q:detach()
  local edge = fixed:log():clamp(-100) + (p - fixed) * (rest * 1e12)
  return limn.where(inside, limn.where(inside, p, 0.5):log(), edge)
end

--- nn.binary_cross_entropy(x, target [, {weight, reduction}]),
-- nn.BCELoss(options): binary cross entropy of probabilities x; logarithms are
-- at least -100, and what divides the gradient, x (1 - x), at least 1e-12.
function M.binary_cross_entropy(x, y, options)
  local o, r = options_of(options, "binary_cross_entropy")
  same_rank(x, y, "binary_cross_entropy")
  if type(y) ~= "number" then
    x = same_sizes(x, y, nil, "binary_cross_entropy")
  end
  local rest = 1 - x
  local l = -(y * bounded_log(x, rest) + (1 - y) * bounded_log(rest, x))
  if o.weight ~= nil then l = l * o.weight end
  l = reduce(l, r)
  return l
end

--- nn.kl_div(x, target [, {log_target = false, reduction}]),
-- nn.KLDivLoss(options): Kullback and Leibler's divergence of log probabilities
-- x from the target; reduction "batchmean" divides the sum by the rows.
function M.kl_div(x, y, options)
  local o, r = options_of(options, "kl_div")
  same_rank(x, y, "kl_div")
  local l
  if o.log_target then
    l = y:exp() * (y - x)
  else -- 0 log 0 is 0
    local some = y:gt(0)
    l = limn.where(some, y * limn.where(some, y, 1):log(), 0) - y * x
  end
  l = reduce(l, r == "batchmean" and "sum" or r)
  if r == "batchmean" then l = l / x:size(1) end
  return l
end

--- nn.cosine_similarity(x, y [, {dim = 2, eps = 1e-8}]),
-- nn.CosineSimilarity(options): the cosine of the angle between x and y along
-- dim; norms count as at least eps.
function M.cosine_similarity(x, y, options)
  local o = options_of(options, "cosine_similarity")
  check(x, "first input", "cosine_similarity")
  check(y, "second input", "cosine_similarity")
  local dim, eps = o.dim or 2, o.eps or 1e-8
  if x:dim() ~= y:dim() then
    core.fail(("cosine_similarity: the inputs have %d and %d dims"):format(
      x:dim(), y:dim()))
  end
  dim = D.whole(x, dim, "cosine_similarity")
  local n, m = D.known(x:size(dim)), D.known(y:size(dim))
  if n and m and n ~= m then
    core.fail(("cosine_similarity: the inputs have sizes %d and %d in dim %d")
      :format(n, m, dim))
  end
  local nx, ny = x:norm(2, dim), y:norm(2, dim)
  local c = (x * y):sum(dim) / (nx:maximum(eps) * ny:maximum(eps))
  return c
end

--- nn.pairwise_distance(x, y [, {p = 2, eps = 1e-6, keepdim = false}]),
-- nn.PairwiseDistance(options): the norm p of x - y + eps along the last dim.
function M.pairwise_distance(x, y, options)
  local o = options_of(options, "pairwise_distance")
  check(x, "first input", "pairwise_distance")
  check(y, "second input", "pairwise_distance")
  local d = (x - y + (o.eps or 1e-6)):norm(o.p or 2, -1, o.keepdim or false)
  return d
end

-- Halves are computed in float32, and rounded once.
for _, name in ipairs {
  "mse_loss", "l1_loss", "huber_loss", "smooth_l1_loss", "bce_with_logits",
  "nll_loss", "cross_entropy", "binary_cross_entropy", "kl_div",
  "cosine_similarity", "pairwise_distance",
} do
  local f = M[name]
  M[name] = function(x, y, options)
    local l = f(wide.widen(x), wide.widen(y), options)
    l = wide.unwiden(l, x, y)
    return l
  end
end

-- -- As layers: nn.MSELoss(options)(x, target) -------------------------------

for name, f in pairs {
  MSELoss = "mse_loss", L1Loss = "l1_loss", HuberLoss = "huber_loss",
  SmoothL1Loss = "smooth_l1_loss", BCEWithLogitsLoss = "bce_with_logits",
  BCELoss = "binary_cross_entropy", NLLLoss = "nll_loss",
  CrossEntropyLoss = "cross_entropy", KLDivLoss = "kl_div",
  CosineSimilarity = "cosine_similarity",
  PairwiseDistance = "pairwise_distance",
} do
  local Class, loss = Module:extend(name), M[f]
  function Class:init(options)
    options_of(options, f, name)
    self.options = options
  end
  function Class:forward(x, y)
    local l = loss(x, y, self.options)
    return l
  end
  M[name] = Class
end
M.binary_cross_entropy_with_logits = M.bce_with_logits

return M
