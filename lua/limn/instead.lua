-- What stands here for names that other libraries have: the hints of errors
-- that say that there is no such name.
local core = require "limn.core"

local gradient = "limn.value_and_grad(f, net) and limn.grad(f) give gradients"
local dtype = 'dtypes are names: x:to "float32", limn.zeros(2, "int64")'

local M = {
  tensor = {
    cpu = 'x:to "cpu"', cuda = 'x:to "cuda:0", or x:to(limn.accelerator())',
    backward = gradient, grad = gradient, requires_grad = gradient,
    requires_grad_ = gradient, retain_grad = gradient,
    numpy = "x:totable(), x:bytes(); limn.data.write_npy writes a file",
    tolist = "x:totable()", T = "x:t()", mT = "x:transpose(-2, -1)",
    ndim = "x:dim()", ndimension = "x:dim()", nelement = "x:numel()",
    zero_ = "x = x:zeros_like()", fill_ = "x = x:full_like(v)",
    copy_ = "x:copy_from(y)", is_cuda = "x.device",
    data_ptr = "x:data()", type = "x.dtype",
  },
  limn = {
    Tensor = "limn.tensor", cuda = "limn.devices(), limn.accelerator()",
    device = 'devices are names: x:to "cuda:0"',
    from_numpy = "limn.data.read_npy, limn.from_string",
    pi = "math.pi", inf = "math.huge", nan = "0 / 0",
    Generator = "limn.manual_seed(n)", set_grad_enabled = "limn.no_grad(f)",
    compile = "limn.jit(f), limn.trace(f, x)", vmap = "limn.map(f, xs)",
    set_num_threads = "LIMN_THREADS=2 before the start",
  },
  nn = {
    utils = "limn.optim.clip_grad_norm, limn.optim.clip_grad_value",
  },
  optimizer = {
    zero_grad = "nothing adds up: opt:step(grads) takes what it is given",
    param_groups = "opt:set {lr = ...}, opt:get \"lr\"",
    load_state_dict = "limn.restore(path, {net = net, opt = opt})",
    state_dict = "limn.save(path, {net = net, opt = opt})",
  },
  optim = {lr_scheduler = "optim.schedule"},
}
for _, name in ipairs {"float64", "float32", "float16", "bfloat16", "int64",
                       "int32", "int8", "uint8"} do
  M.limn[name] = dtype
end
-- Lua has no assignment to what a name stands for, and values do not change.
setmetatable(M.tensor, {__index = function(_, key)
  local name = type(key) == "string" and key:match "^(%l[%w_]*)_$"
  if name and core.raw "methods"[name] then
    return ("values do not change: x = x:%s(...)"):format(name)
  end
end})

core.set_instead(M.tensor)

return M
