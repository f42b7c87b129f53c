rockspec_format = "3.0"
package = "limn"
version = "scm-1"
source = {url = "git+file://."}
description = {
  summary = "Traced models for LuaJIT that run on any device",
  detailed = [[
Models are Lua modules. A model is traced once, to a graph that names no
device, and runs on the CPU or an accelerator, wherever its arguments are.]],
  license = "MIT",
}
-- LuaJIT reports itself as Lua 5.1; `require "limn"` checks for `jit`.
dependencies = {"lua == 5.1"}
build = {
  type = "make",
  build_target = "lua",
  build_variables = {
    CC = "$(CC)",
    CFLAGS = "$(CFLAGS)",
    WERROR = "0", -- a newer compiler's warnings must not stop an install
  },
  install_target = "install-lua",
  install_variables = {
    WERROR = "0",
    CC = "$(CC)",
    CFLAGS = "$(CFLAGS)",
    PREFIX = "$(PREFIX)",
    INST_LIBDIR = "$(LIBDIR)",
    INST_LUADIR = "$(LUADIR)",
    INST_BINDIR = "$(BINDIR)",
  },
}
deploy = {wrap_bin_scripts = false}
test = {type = "command", command = "make test"}
