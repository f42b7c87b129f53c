-- Runs busted in this very interpreter, so that LD_PRELOAD and the like reach
-- the specs (the `busted` command may start another one).
require "busted.runner" {standalone = false}
