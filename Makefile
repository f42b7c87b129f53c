# limn: `make deps demo` tries it, `make deps test` tests it.
#
#   make            build/limn/core.so (the Lua module), build/liblimn.{a,so}
#   make deps       install what is missing (Debian, Ubuntu)
#   make demo       train and run the digits example
#   make test       the specs; DEVICE=opencl:0 and OP=tanh narrow them, and
#                   CUDA=standin gives machines without a GPU cuda:0 and cuda:1
#   make check-cuda the suite's CUDA kernels, through the real NVRTC as well
#   make check      format, warnings, luacheck, specs, examples
#   make fuzz       random programs without end; SEED=1 N=100 bound them
#   make bench      speed against references; writes build/bench.json; with
#                   DEVICE=cuda:0 a GPU's, against its vendor's library
#                   PEERS=1 adds PyTorch's, where PYTHON=python3 has it
#   make asan       the specs under the address and undefined sanitizers
#   make compat     spec/compat/unreleased.*, after a change of the op table
#   make docs       docs/reference.md, from the comments and the op table
#   make install    PREFIX=/usr/local DESTDIR=
#   make clean
#
# What follows asks the compiler what it is, so `make deps demo` installs one
# first, and then starts make anew for the other goals.
rest := $(if $(filter deps,$(MAKECMDGOALS)),$(filter-out deps,$(MAKECMDGOALS)))
ifneq ($(rest),)
.PHONY: deps $(rest)
deps:
	sh scripts/deps.sh
$(firstword $(rest)): deps
	@$(MAKE) --no-print-directory $(rest)
$(wordlist 2,$(words $(rest)),$(rest)): $(firstword $(rest)) ;
else

# Variables that LuaRocks passes may be empty command-line assignments, which
# defeat `?=`; hence $(or $(strip $(X)),default), and names of our own.

B := $(or $(strip $(BUILD)),build)
ifeq ($(origin CC),default)
  cc := $(or $(firstword $(foreach c,gcc clang,$(if $(shell command -v $(c)),$(c)))),cc)
else
  cc := $(or $(strip $(CC)),gcc)
endif
prefix := $(or $(strip $(PREFIX)),/usr/local)
lua_dir := $(or $(strip $(INST_LUADIR)),$(prefix)/share/lua/5.1)
lua_cdir := $(or $(strip $(INST_LIBDIR)),$(prefix)/lib/lua/5.1)
bin_dir := $(or $(strip $(INST_BINDIR)),$(prefix)/bin)
luajit := $(or $(strip $(LUAJIT)),luajit)

arch := $(firstword $(subst -, ,$(shell $(cc) -dumpmachine 2>/dev/null)))
is_x86 := $(filter x86_64 amd64,$(arch))
is_clang := $(findstring clang,$(shell $(cc) --version 2>/dev/null))
pc = $(shell pkg-config $(1) 2>/dev/null)
lua_inc := $(or $(call pc,--variable=includedir luajit),/usr/include/luajit-2.1)
blas_inc := $(call pc,--cflags openblas)
blas_lib := $(or $(call pc,--libs openblas),-lopenblas)

# -- Flags. Kernels have their own: with -O2 alone they cost three times. --
werror := $(if $(filter 0,$(WERROR)),,-Werror)
warn := -Wall -Wextra -Wshadow -Wvla -Wstrict-prototypes $(werror)
common := -g -fPIC -fvisibility=hidden -MMD -MP -Icore -Ikernels -I$(B) \
  $(warn) $(blas_inc) $(SANITIZE)
core_flags := $(CFLAGS) -std=c11 -D_GNU_SOURCE -O2 $(common)
kernel_flags := $(CFLAGS) -std=gnu11 -D_GNU_SOURCE -O3 -fno-math-errno \
  -fopenmp-simd -fwrapv -fno-trapping-math -Wno-psabi $(common) $(if $(is_clang),\
  $(if $(is_x86),-fveclib=libmvec) -Wno-pass-failed)
libs := $(blas_lib) $(if $(is_x86),-lmvec) -lm -ldl -lpthread
link := $(cc) -shared $(SANITIZE) -Wl,--as-needed

q := $(if $(strip $(V)),,@)# V=1 shows the commands
say := @$(if $(strip $(V)),:,echo)

# -- Files --
lua_c := $(sort $(wildcard core/lua_*.c))
core_c := $(filter-out $(lua_c),$(sort $(wildcard core/*.c)))
kernel_c := $(sort $(wildcard kernels/*.c))
ifeq ($(is_x86),)
  kernel_c := $(filter-out %_avx2.c %_avx512.c,$(kernel_c))
endif
lib_o := $(core_c:%.c=$(B)/o/%.o) $(kernel_c:%.c=$(B)/o/%.o)
lua_o := $(lua_c:%.c=$(B)/o/%.o)
# Text that core/gpu.c hands to the drivers' compilers.
embedded := $(sort $(wildcard kernels/*.k kernels/prelude_*.h kernels/philox.h \
  kernels/special.h))
lua_files := $(shell find lua -name '*.lua' 2>/dev/null)

export LUA_PATH := $(CURDIR)/lua/?.lua;$(CURDIR)/lua/?/init.lua;;
export LUA_CPATH := $(abspath $(B))/?.so;;

.PHONY: all lib lua deps demo test fuzz check check-cuda style compat docs \
  bench asan install install-lua clean FORCE
.DELETE_ON_ERROR:
all: lib lua
lib: $(B)/liblimn.a $(B)/liblimn.so
lua: $(B)/limn/core.so

$(B)/limn/core.so: $(lib_o) $(lua_o)
	@mkdir -p $(@D)
	$(say) LD $@
	$(q)$(link) -o $@ $^ $(libs)
# One object, in which what limn.h does not declare is local: the names of the
# host that links it are its own.
$(B)/liblimn.a: $(lib_o)
	@rm -f $@
	$(say) AR $@
	$(q)$(cc) -r -nostdlib -o $(B)/o/limn.o $^
	$(q)objcopy --localize-hidden $(B)/o/limn.o
	$(q)$(or $(strip $(AR)),ar) rcs $@ $(B)/o/limn.o
$(B)/liblimn.so: $(lib_o)
	$(say) LD $@
	$(q)$(link) -Wl,-z,defs -Wl,-soname,liblimn.so.0 -o $@ $^ $(libs)

# Compiled anew when the flags or the compiler change.
$(B)/flags: FORCE
	@mkdir -p $(B)
	@echo '$(cc) $(core_flags) / $(kernel_flags)' | cmp -s - $@ || \
	  echo '$(cc) $(core_flags) / $(kernel_flags)' > $@
$(B)/kernels_gen.h: kernels/embed.sh $(embedded)
	@mkdir -p $(@D)
	@sh kernels/embed.sh $@ $(embedded)
$(lib_o) $(lua_o): $(B)/flags | $(B)/kernels_gen.h

$(B)/o/core/%.o: core/%.c
	@mkdir -p $(@D)
	$(say) CC $<
	$(q)$(cc) $(core_flags) $(lua_flags) -c -o $@ $<
lua_flags = $(if $(findstring /lua_,$<),-isystem $(lua_inc))
$(B)/o/kernels/%.o: kernels/%.c
	@mkdir -p $(@D)
	$(say) CC $<
	$(q)$(cc) $(kernel_flags) $(isa) $(contract) -c -o $@ $<
# Contraction would make fused and unfused elementwise results differ.
contract = $(if $(filter cpu_gemm% cpu_conv%,$(notdir $<)),-ffp-contract=fast,\
  -ffp-contract=off)
isa = $(if $(findstring _avx512,$<),-march=x86-64-v4,\
  $(if $(findstring _avx2,$<),-march=x86-64-v3))
-include $(lib_o:.o=.d) $(lua_o:.o=.d)

# -- C programs: examples, and what specs and the benchmark need --
program = $(q)$(cc) $(core_flags) -o $@ $< $(B)/liblimn.a $(libs)
inside = $(q)$(cc) $(core_flags) -o $@ $< $(lib_o) $(libs)# not limn.h alone
$(B)/alloc: spec/support/alloc.c $(lib_o)
	$(say) CC $<
	$(inside)
$(B)/host: examples/host.c $(B)/liblimn.a
	$(say) CC $<
	$(program)
$(B)/%: spec/support/%.c $(B)/liblimn.a
	$(say) CC $<
	$(program)
$(B)/%: bench/%.c bench/bench.h $(lib_o)
	$(say) CC $<
	$(inside) -O3 -march=native -fno-math-errno -fopenmp-simd
# What stands in for CUDA's libraries on a machine without a GPU.
standin := $(B)/cuda_standin/libcuda.so.1
standin_h := $(wildcard spec/support/cuda_standin/*.h) core/cuda_api.h
standin_c := $(wildcard spec/support/cuda_standin/*.c)
standin_dirs := -DSTANDIN_FOLDER='"$(CURDIR)/spec/support/cuda_standin"' \
  -DSTANDIN_BUILD='"$(abspath $(B))/cuda_standin"'
$(standin): $(standin_c) $(standin_h) $(B)/flags
	@mkdir -p $(@D)
	$(say) CC spec/support/cuda_standin
	$(q)$(cc) $(CFLAGS) -std=c11 -D_GNU_SOURCE -O3 -g -fPIC $(warn) \
	  -fvisibility=hidden -Icore $(blas_inc) $(standin_dirs) -shared \
	  -Wl,-z,defs,-z,nodelete -o $@ $(standin_c) $(blas_lib) -lm -ldl -lpthread
programs := $(standin) $(patsubst examples/%.c,$(B)/%,$(wildcard examples/host.c)) \
  $(patsubst spec/support/%.c,$(B)/%,$(wildcard spec/support/*.c))
benches := $(patsubst bench/%.c,$(B)/%,$(wildcard bench/*.c))

# -- Uses --
deps:
	sh scripts/deps.sh
demo: all
	$(luajit) examples/digits.lua
# CUDA=standin: cuda:0 and cuda:1 are spec/support/cuda_standin.
check-cuda: CUDA = standin
cuda_env = $(if $(filter standin,$(CUDA)),LIMN_CUDA_LIB='$(abspath \
  $(standin))' LIMN_NVRTC_LIB='$(abspath $(standin))' \
  LIMN_CUBLAS_LIB='$(abspath $(standin))' \
  LIMN_CUDNN_LIB='$(abspath $(standin))' \
  LIMN_CACHE='$(abspath $(B))/cuda_standin/kernels')
test: all $(programs)
	$(cuda_env) LIMN_TEST_DEVICE='$(DEVICE)' LIMN_TEST_OP='$(OP)' busted $(ARGS)
# All that the suite compiles for CUDA, on the stand-in, goes through NVRTC, too.
standin_sources := $(B)/cuda_standin/sources
check-cuda: all $(programs)
	rm -rf $(standin_sources)
	STANDIN_SOURCES=$(abspath $(standin_sources)) \
	  $(MAKE) test DEVICE=cuda:0 CUDA=standin
	$(cuda_env) LIMN_CUBLAS_LIB=off LIMN_CUDNN_LIB=off LIMN_CACHE= STANDIN_DRY=1 \
	  STANDIN_MEMORY=100000000000 STANDIN_SOURCES=$(standin_sources) \
	  $(luajit) spec/support/kernels.lua cuda:0
	seq $$(nproc) | xargs -P 0 -I{} \
	  $(luajit) scripts/nvrtc.lua $(standin_sources) {} $$(nproc)
fuzz: all
	$(luajit) spec/support/fuzz_run.lua '$(SEED)' '$(N)'
style:
	sh scripts/style.sh
check: style all $(programs)
	luacheck -q lua spec examples bin/limn
	busted $(ARGS)
	$(luajit) examples/seed.lua
	$(luajit) examples/digits.lua --quick
compat: all
	$(luajit) spec/compat/make.lua
docs: all
	mkdir -p docs
	$(luajit) scripts/reference.lua > docs/reference.md
bench: all $(benches)
	$(luajit) $(if $(filter-out cpu,$(DEVICE)),bench/gpu.lua $(B) $(DEVICE),\
	  bench/bench.lua $(B)) \
	  $(if $(strip $(PEERS)),$(or $(strip $(PYTHON)),python3))

# LuaJIT frees everything when the state closes, so leaks are ours; what the
# OpenCL driver keeps until exit is not (scripts/leaks.supp).
asan_dir := $(B)/asan
asan:
	$(MAKE) BUILD=$(asan_dir) CC='$(if $(is_clang),gcc,$(cc))' \
	  SANITIZE='-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer' \
	  all programs
	LUA_CPATH='$(abspath $(asan_dir))/?.so;;' \
	LIMN_TEST_DEVICE='$(DEVICE)' LIMN_TEST_OP='$(OP)' LIMN_TEST_ASAN=1 \
	ASAN_OPTIONS=detect_leaks=1:allocator_may_return_null=1:abort_on_error=0:handle_segv=1:intercept_tls_get_addr=0 \
	LSAN_OPTIONS=suppressions=scripts/leaks.supp:print_suppressions=0 \
	UBSAN_OPTIONS=print_stacktrace=1 \
	LD_PRELOAD="$$(gcc -print-file-name=libasan.so)" \
	  $(luajit) scripts/busted.lua --cpath='$(asan_dir)/?.so' $(ARGS)
.PHONY: programs
programs: $(programs)

install: all install-lua
	mkdir -p '$(DESTDIR)$(prefix)/include' '$(DESTDIR)$(prefix)/lib/pkgconfig'
	install -m 644 core/limn.h '$(DESTDIR)$(prefix)/include/limn.h'
	install -m 644 $(B)/liblimn.a '$(DESTDIR)$(prefix)/lib/liblimn.a'
	install -m 755 $(B)/liblimn.so '$(DESTDIR)$(prefix)/lib/liblimn.so.0'
	ln -sf liblimn.so.0 '$(DESTDIR)$(prefix)/lib/liblimn.so'
	printf '%s\n' 'prefix=$(prefix)' 'includedir=$${prefix}/include' \
	  'libdir=$${prefix}/lib' '' 'Name: limn' \
	  'Description: traced models on any device' 'Version: 0.1.0' \
	  'Cflags: -I$${includedir}' 'Libs: -L$${libdir} -llimn' \
	  'Libs.private: $(libs)' \
	  > '$(DESTDIR)$(prefix)/lib/pkgconfig/limn.pc'
# The Lua part alone, as LuaRocks wants it.
install-lua: lua
	mkdir -p '$(DESTDIR)$(lua_cdir)/limn' '$(DESTDIR)$(bin_dir)'
	install -m 755 $(B)/limn/core.so '$(DESTDIR)$(lua_cdir)/limn/core.so'
	for f in $(lua_files:lua/%=%); do \
	  mkdir -p "$(DESTDIR)$(lua_dir)/$$(dirname $$f)" && \
	  install -m 644 lua/$$f "$(DESTDIR)$(lua_dir)/$$f" || exit 1; done
	install -m 755 bin/limn '$(DESTDIR)$(bin_dir)/limn'
clean:
	rm -rf $(B)
endif
