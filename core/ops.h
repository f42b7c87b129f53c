/* The op table: one row per op, and the map of the whole project.
 *
 * Rows that a release had never change (spec/compat/): names, arguments,
 * defaults and meaning are in files. What is to change gets a row of its own.
 *
 * This file is included many times; each reader defines the row macros that it
 * needs (all others default to nothing) and undefines none: the end of this
 * file does. From the rows come the op enum, the signature that checks Lua and
 * text arguments, the dtype and rank rules, the CPU loops (kernels/cpu_elem*),
 * the GPU source (codegen.c, by stringizing the expression), the gradient
 * (grad.c), the Lua method and metamethod, the reference and the generated
 * tests. An elementwise or reduce op is one row and nothing else.
 *
 *  E1 E2 E3 (name, meta, rule, domain, sig, expr, gradients..., doc)
 *     elementwise: `expr` in the operands a, b, c and the type T, written in
 *     the dialect below; operands broadcast and may be plain numbers.
 *  R  (name, rule, sig, init, step, grad, doc)
 *     reduction over dims: acc = step(acc, a), associative.
 *  V  (name, sig, view, rank, grad, doc)
 *     view: `view` maps shape, strides and offset; no element moves.
 *  G  (name, rule, sig, expr, doc)
 *     generator: element number i of the result, from attributes only.
 *  S  (name, sig, infer, rank, expand, grad, doc)
 *     special: shape by `infer`; a device kernel, or `expand` into other rows.
 *  H  (name, sig, kind, doc)
 *     structure and plan values: inputs, cells, sizes, print; region ops,
 *     whose results are read with `pick` (LIST).
 *
 * Signatures: parameters "name:type" separated by spaces, in PyTorch's order.
 *   types  T tensor or number   S tensor of which only shape, dtype matter
 *          i int   r real   b bool   s string   y dtype
 *          d a dim   D list of dims   L list of ints (sizes, positions)
 *          e a name out of a fixed set, checked by infer
 *   "?" may be absent; "*" a list of tensors; "=v" has the default v.
 * Ints, reals, bools, dtypes and lists of ints may be plan values.
 *
 * Dtype rules
 *   NUM  promote all operands; the result has that dtype; computed in it
 *   FLT  as NUM, but ints and bools become float32
 *   CMP  operands promoted, result bool      TST  float operand, result bool
 *   LOG  operands taken as bools, result bool
 *   SEL  a is bool, b and c promoted as NUM
 *   SUM  NUM, but ints and bools become int64
 *   BIT  NUM, of ints and bools only
 * Ranks of V and S rows: A_ B_ C_ the shape is that of the first, second, third
 *   operand; X_ the rank is that of the first; others are rules of op.c.
 * Domains for the generated tests: REAL, POS (> 0.2), UNIT (-0.8..0.8),
 *   GE1 (> 1.2), NZ (|x| > 0.2), BOOL.
 *
 * The dialect: T is the computing type, K(x) a literal of it; exp log log1p
 * expm1 sqrt sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf
 * lgamma hypot floor ceil rint trunc ABS MAX MIN (propagate NaN) POW REM FMOD
 * FDIV ATAN2 RSQRT LOGADD ERFINV DIGAMMA POLYGAMMA; of ints and bools BNOT BAND
 * BOR BXOR SHL SHR; comparisons give 0 or 1. Gradients are written with the
 * builder macros of grad.c: a b c operands, y result, g its gradient, N(x) a
 * number.
 */
#ifndef E1
#define E1(name, meta, rule, domain, sig, expr, ga, doc)
#endif
#ifndef E2
#define E2(name, meta, rule, domain, sig, expr, ga, gb, doc)
#endif
#ifndef E3
#define E3(name, meta, rule, domain, sig, expr, ga, gb, gc, doc)
#endif
#ifndef R
#define R(name, rule, sig, init, step, grad, doc)
#endif
#ifndef V
#define V(name, sig, view, rank, grad, doc)
#endif
#ifndef G
#define G(name, rule, sig, expr, doc)
#endif
#ifndef S
#define S(name, sig, infer, rank, expand, grad, doc)
#endif
#ifndef H
#define H(name, sig, kind, doc)
#endif
/* clang-format off */

/* -- Structure and plan values ------------------------------------------- */
H(input,   "index:i",             TENSOR, "The graph's tensor input number `index`.")
H(number,  "index:i",             REAL,   "The graph's number input number `index`.")
H(cell,    "index:i",             TENSOR, "The value of a cell on entry.")
H(const,   "index:i",             TENSOR, "A captured tensor.")
H(size,    "x:S dim:d",           INT,    "Size of x along dim.")
H(dtypeof, "x:S",                 DTYPE,  "The dtype of x.")
H(mode,    "index:i",             BOOL,   "Whether a module is in training mode.")
H(on,      "kind:s",              BOOL,   "Whether the run's device is of this kind: cpu or gpu.")
H(is,      "x:y y:y",             BOOL,   "Whether two dtypes are equal.")
H(custom,  "xs:T* f:i vjp:i draw:i", TENSOR, "A region with a gradient of its own.")
H(cond,    "pred:T xs:T* f:i g:i draw:i", LIST, "Results of region f where pred holds, of g where not; both take xs.")
H(while,   "carry:T* outer:T* test:i body:i draw:i", LIST, "carry = body(carry, outer) as long as test(carry, outer) holds.")
H(scan,    "carry:T* xs:T* outer:T* body:i reverse:b=false draw:i", LIST, "carry, y = body(carry, row of xs, outer) for each row; the last carry, then every y stacked.")
H(pick,    "x:T index:i",         TENSOR, "Result number `index` of a node with several.")
H(print,   "xs:T* text:s",        NONE,   "Show values when the run gets here; text has one {} for each; {{ is a brace.")
H(device,  "",                    DEVICE, "Where the run happens.")

/* -- Elementwise, one operand -------------------------------------------- */
E1(neg,    "__unm", NUM, REAL, "x:T", -a,             NEG(g),              "Negative.")
E1(abs,    "", NUM, NZ,   "x:T", ABS(a),              MUL(g, SIGN(a)),     "Absolute value.")
E1(sign,   "", NUM, NZ,   "x:T", (T)((a > K(0)) - (a < K(0))) + (a != a ? a : K(0)), NONE, "-1, 0 or 1; NaN stays.")
E1(square, "", NUM, REAL, "x:T", a * a,               MUL(g, MUL(N(2), a)), "x * x.")
E1(floor,  "", NUM, REAL, "x:T", floor(a),            NONE,                "Largest whole number <= x.")
E1(ceil,   "", NUM, REAL, "x:T", ceil(a),             NONE,                "Smallest whole number >= x.")
E1(round,  "", NUM, REAL, "x:T", rint(a),             NONE,                "Nearest whole number, halves to even.")
E1(trunc,  "", NUM, REAL, "x:T", trunc(a),            NONE,                "Whole part, towards zero.")
E1(frac,   "", NUM, NZ,   "x:T", a - trunc(a),        g,                   "x less its whole part: x's sign.")
E1(relu,   "", NUM, NZ,   "x:T", a < K(0) ? K(0) : a, WHERE(GT(y, N(0)), g, N(0)), "max(x, 0); NaN stays.")
E1(exp,    "", FLT, REAL, "x:T", exp(a),              MUL(g, y),           "e ^ x.")
E1(exp2,   "", FLT, REAL, "x:T", exp2(a),             MUL(g, MUL(y, N(0.69314718055994530942))), "2 ^ x.")
E1(expm1,  "", FLT, REAL, "x:T", expm1(a),            MUL(g, ADD(y, N(1))), "e ^ x - 1, exact near 0.")
E1(log,    "", FLT, POS,  "x:T", log(a),              DIV(g, a),           "Natural logarithm.")
E1(log2,   "", FLT, POS,  "x:T", log2(a),             DIV(g, MUL(a, N(0.69314718055994530942))), "Logarithm to base 2.")
E1(log10,  "", FLT, POS,  "x:T", log10(a),            DIV(g, MUL(a, N(2.30258509299404568402))), "Logarithm to base 10.")
E1(log1p,  "", FLT, POS,  "x:T", log1p(a),            DIV(g, ADD(a, N(1))), "log(1 + x), exact near 0.")
E1(sqrt,   "", FLT, POS,  "x:T", sqrt(a),             DIV(g, MUL(N(2), y)), "Square root.")
E1(rsqrt,  "", FLT, POS,  "x:T", RSQRT(a),            MUL(g, MUL(N(-0.5), MUL(y, SQUARE(y)))), "1 / sqrt(x).")
E1(reciprocal, "", FLT, POS, "x:T", K(1) / a,         NEG(MUL(g, SQUARE(y))), "1 / x.")
E1(sin,    "", FLT, REAL, "x:T", sin(a),              MUL(g, COS(a)),      "Sine of radians.")
E1(cos,    "", FLT, REAL, "x:T", cos(a),              NEG(MUL(g, SIN(a))), "Cosine of radians.")
E1(tan,    "", FLT, UNIT, "x:T", tan(a),              MUL(g, ADD(N(1), SQUARE(y))), "Tangent of radians.")
E1(asin,   "", FLT, UNIT, "x:T", asin(a),             MUL(g, RSQRT(SUB(N(1), SQUARE(a)))), "Inverse sine.")
E1(acos,   "", FLT, UNIT, "x:T", acos(a),             NEG(MUL(g, RSQRT(SUB(N(1), SQUARE(a))))), "Inverse cosine.")
E1(atan,   "", FLT, REAL, "x:T", atan(a),             DIV(g, ADD(N(1), SQUARE(a))), "Inverse tangent.")
E1(sinh,   "", FLT, REAL, "x:T", sinh(a),             MUL(g, COSH(a)),     "Hyperbolic sine.")
E1(cosh,   "", FLT, REAL, "x:T", cosh(a),             MUL(g, SINH(a)),     "Hyperbolic cosine.")
E1(tanh,   "", FLT, REAL, "x:T", tanh(a),             MUL(g, SUB(N(1), SQUARE(y))), "Hyperbolic tangent.")
E1(asinh,  "", FLT, REAL, "x:T", asinh(a),            MUL(g, RSQRT(ADD(SQUARE(a), N(1)))), "Inverse hyperbolic sine.")
E1(acosh,  "", FLT, GE1,  "x:T", acosh(a),            MUL(g, RSQRT(SUB(SQUARE(a), N(1)))), "Inverse hyperbolic cosine.")
E1(atanh,  "", FLT, UNIT, "x:T", atanh(a),            DIV(g, SUB(N(1), SQUARE(a))), "Inverse hyperbolic tangent.")
E1(erf,    "", FLT, REAL, "x:T", erf(a),              MUL(g, MUL(N(1.12837916709551257390), EXP(NEG(SQUARE(a))))), "Error function.")
E1(erfinv, "", FLT, UNIT, "x:T", ERFINV(a),           MUL(g, MUL(N(0.88622692545275801365), EXP(SQUARE(y)))), "Inverse error function.")
E1(lgamma, "", FLT, POS,  "x:T", lgamma(a),           MUL(g, DIGAMMA(a)),  "log(|gamma(x)|).")
E1(digamma, "", FLT, POS, "x:T", DIGAMMA(a),         MUL(g, POLYGAMMA(N(1), a)), "The derivative of lgamma.")
E1(sigmoid, "", FLT, REAL, "x:T", K(1) / (K(1) + exp(-a)), MUL(g, MUL(y, SUB(N(1), y))), "1 / (1 + e^-x).")
E1(silu,   "", FLT, REAL, "x:T", a / (K(1) + exp(-a)), MUL(g, MUL(SIGMOID(a), ADD(N(1), MUL(a, SUB(N(1), SIGMOID(a)))))), "x * sigmoid(x).")
E1(softplus, "", FLT, REAL, "x:T", MAX(a, K(0)) + log1p(exp(-ABS(a))), MUL(g, SIGMOID(a)), "log(1 + e^x).")
E1(logsigmoid, "", FLT, REAL, "x:T", MIN(a, K(0)) - log1p(exp(-ABS(a))), MUL(g, SIGMOID(NEG(a))), "log(sigmoid(x)).")
E1(mish,   "", FLT, REAL, "x:T", a * tanh(MAX(a, K(0)) + log1p(exp(-ABS(a)))),
   MUL(g, ADD(TANH(SOFTPLUS(a)), MUL(MUL(a, SIGMOID(a)), SUB(N(1), SQUARE(TANH(SOFTPLUS(a))))))), "x * tanh(softplus(x)).")
E1(gelu,   "", FLT, REAL, "x:T", a * K(0.5) * (K(1) + erf(a * K(0.70710678118654752440))),
   MUL(g, ADD(MUL(N(0.5), ADD(N(1), ERF(MUL(a, N(0.70710678118654752440))))), MUL(a, MUL(N(0.39894228040143267794), EXP(MUL(N(-0.5), SQUARE(a))))))), "x times the normal distribution function, exact.")
E1(gelu_tanh, "", FLT, REAL, "x:T", a * K(0.5) * (K(1) + tanh(K(0.79788456080286535588) * (a + K(0.044715) * a * a * a))),
   MUL(g, MUL(SIGMOID(MUL(a, ADD(N(1.59576912160573071176), MUL(N(0.07135481627260024878), SQUARE(a))))),
   ADD(N(1), MUL(MUL(a, ADD(N(1.59576912160573071176), MUL(N(0.21406444881780074633), SQUARE(a)))), SIGMOID(NEG(MUL(a, ADD(N(1.59576912160573071176), MUL(N(0.07135481627260024878), SQUARE(a)))))))))),
   "gelu by its approximation with tanh.")
E1(selu,   "", FLT, NZ,   "x:T", a > K(0) ? K(1.0507009873554804934) * a : K(1.7580993408473768599) * expm1(a),
   WHERE(GT(a, N(0)), MUL(g, N(1.0507009873554804934)), MUL(g, ADD(y, N(1.7580993408473768599)))), "Self-normalising elu.")
E1(hardswish, "", FLT, REAL, "x:T", a * MIN(MAX(a + K(3), K(0)), K(6)) / K(6),
   WHERE(LE(a, N(-3)), N(0), WHERE(GE(a, N(3)), g, MUL(g, ADD(DIV(a, N(3)), N(0.5))))), "x * clamp(x + 3, 0, 6) / 6.")
E1(hardsigmoid, "", FLT, REAL, "x:T", MIN(MAX(a + K(3), K(0)), K(6)) / K(6),
   WHERE(LT(ABS_(a), N(3)), DIV(g, N(6)), N(0)), "clamp(x + 3, 0, 6) / 6.")
E1(isnan,  "", TST, REAL, "x:T", a != a,              NONE, "Whether x is NaN.")
E1(isinf,  "", TST, REAL, "x:T", a - a != a - a && a == a, NONE, "Whether x is infinite.")
E1(isfinite, "", TST, REAL, "x:T", a - a == a - a,    NONE, "Whether x is neither NaN nor infinite.")
E1(bitwise_not, "", BIT, REAL, "x:T", BNOT(a),       NONE, "Every bit the other; of a bool, not.")
E1(logical_not, "", LOG, BOOL, "x:T", !a,             NONE, "Whether x is zero or false.")

/* -- Elementwise, two operands ------------------------------------------- */
E2(add,    "__add", NUM, REAL, "x:T y:T", a + b, g, g, "Sum, broadcast.")
E2(sub,    "__sub", NUM, REAL, "x:T y:T", a - b, g, NEG(g), "Difference, broadcast.")
E2(mul,    "__mul", NUM, REAL, "x:T y:T", a * b, MUL(g, b), MUL(g, a), "Product, broadcast.")
E2(div,    "__div", FLT, NZ,   "x:T y:T", a / b, DIV(g, b), NEG(MUL(g, DIV(y, b))), "Quotient, broadcast; ints give a float.")
E2(floor_div, "", NUM, NZ,     "x:T y:T", FDIV(a, b), NONE, NONE, "floor(x / y); an int by zero is 0.")
E2(remainder, "__mod", NUM, NZ, "x:T y:T", REM(a, b), g, NEG(MUL(g, FLOOR_DIV(a, b))), "x - floor(x / y) * y: the divisor's sign, as Lua's %; an int by zero is 0.")
E2(fmod,   "", NUM, NZ,        "x:T y:T", FMOD(a, b), g, NEG(MUL(g, TRUNC(DIV(a, b)))), "x - trunc(x / y) * y: x's sign, as C's %; an int by zero is 0.")
E2(pow,    "__pow", NUM, POS,  "x:T y:T", POW(a, b),
   WHERE(EQ(b, N(0)), N(0), MUL(g, MUL(b, POW_(a, SUB(b, N(1)))))),
   WHERE(EQ(a, N(0)), N(0), MUL(g, MUL(y, LOG(a)))), "x to the power y.")
E2(maximum, "", NUM, REAL, "x:T y:T", MAX(a, b),
   WHERE(GT(a, b), g, WHERE(EQ(a, b), MUL(g, N(0.5)), N(0))), WHERE(GT(b, a), g, WHERE(EQ(a, b), MUL(g, N(0.5)), N(0))), "The larger; NaN if either is.")
E2(minimum, "", NUM, REAL, "x:T y:T", MIN(a, b),
   WHERE(LT(a, b), g, WHERE(EQ(a, b), MUL(g, N(0.5)), N(0))), WHERE(LT(b, a), g, WHERE(EQ(a, b), MUL(g, N(0.5)), N(0))), "The smaller; NaN if either is.")
E2(atan2,  "", FLT, NZ, "y:T x:T", ATAN2(a, b),
   MUL(g, DIV(b, ADD(SQUARE(a), SQUARE(b)))), NEG(MUL(g, DIV(a, ADD(SQUARE(a), SQUARE(b))))), "Angle of the point (x, y) in radians.")
E2(polygamma, "", FLT, POS, "n:T x:T", POLYGAMMA(a, b), NONE, MUL(g, POLYGAMMA(ADD(a, N(1)), b)), "The n-th derivative of digamma, for x above 0; n = 1 also below.")
E2(hypot,  "", FLT, NZ, "x:T y:T", hypot(a, b), MUL(g, DIV(a, y)), MUL(g, DIV(b, y)), "sqrt(x^2 + y^2) without overflow.")
E2(logaddexp, "", FLT, REAL, "x:T y:T", LOGADD(a, b), MUL(g, SIGMOID(SUB(a, b))), MUL(g, SIGMOID(SUB(b, a))), "log(e^x + e^y) without overflow.")
E2(xlogy,  "", FLT, POS, "x:T y:T", a == K(0) && b == b ? K(0) : a * log(b),
   WHERE(AND(EQ(a, N(0)), LE(b, N(0))), N(0), MUL(g, LOG(b))), MUL(g, DIV(a, b)), "x * log(y), and 0 where x is 0.")
E2(elu,    "", FLT, NZ, "x:T alpha:T=1.0", a > K(0) ? a : b * expm1(a),
   WHERE(GT(a, N(0)), g, MUL(g, ADD(y, b))), WHERE(GT(a, N(0)), N(0), MUL(g, EXPM1(a))), "x, or alpha * (e^x - 1) below 0.")
E2(leaky_relu, "", FLT, NZ, "x:T slope:T=0.01", a > K(0) ? a : a * b,
   WHERE(GT(a, N(0)), g, MUL(g, b)), WHERE(GT(a, N(0)), N(0), MUL(g, a)), "x, or slope * x below 0.")
E2(lt,     "", CMP, REAL, "x:T y:T", a < b,  NONE, NONE, "x < y.")
E2(le,     "", CMP, REAL, "x:T y:T", a <= b, NONE, NONE, "x <= y.")
E2(gt,     "", CMP, REAL, "x:T y:T", a > b,  NONE, NONE, "x > y.")
E2(ge,     "", CMP, REAL, "x:T y:T", a >= b, NONE, NONE, "x >= y.")
E2(eq,     "", CMP, REAL, "x:T y:T", a == b, NONE, NONE, "Element by element equal.")
E2(ne,     "", CMP, REAL, "x:T y:T", a != b, NONE, NONE, "Element by element unequal.")
E2(bitwise_and, "", BIT, REAL, "x:T y:T", BAND(a, b), NONE, NONE, "The bits that both have.")
E2(bitwise_or,  "", BIT, REAL, "x:T y:T", BOR(a, b),  NONE, NONE, "The bits that either has.")
E2(bitwise_xor, "", BIT, REAL, "x:T y:T", BXOR(a, b), NONE, NONE, "The bits that exactly one has.")
E2(bitwise_left_shift,  "", BIT, REAL, "x:T y:T", SHL(a, b), NONE, NONE, "Bits moved up by y places, 0 coming in; by more than there are, or fewer than none: 0.")
E2(bitwise_right_shift, "", BIT, REAL, "x:T y:T", SHR(a, b), NONE, NONE, "Bits moved down by y places; the sign comes in.")
E2(logical_and, "", LOG, BOOL, "x:T y:T", a && b, NONE, NONE, "Both true.")
E2(logical_or,  "", LOG, BOOL, "x:T y:T", a || b, NONE, NONE, "Either true.")
E2(logical_xor, "", LOG, BOOL, "x:T y:T", !a != !b, NONE, NONE, "Exactly one true.")

/* -- Elementwise, three operands ----------------------------------------- */
E3(where,  "", SEL, REAL, "cond:T x:T y:T", a ? b : c, NONE, WHERE(a, g, N(0)), WHERE(a, N(0), g), "x where cond holds, else y.")
E3(clamp,  "", NUM, REAL, "x:T min:T? max:T?", MIN(MAX(a, b), c),
   WHERE(AND(GE(a, b), LE(a, c)), g, N(0)), WHERE(LT(a, b), g, N(0)), WHERE(GT(a, c), g, N(0)), "x kept within min and max, either of which may be absent.")

/* -- Reductions ---------------------------------------------------------- */
R(sum,  SUM, "x:T dim:D? keepdim:b=false", K(0), acc + a, SPREAD(g), "Sum over dims.")
R(prod, SUM, "x:T dim:D? keepdim:b=false", K(1), acc * a, grad_prod(B, a, y, g, dims, keep), "Product over dims.")
R(max,  NUM, "x:T dim:D? keepdim:b=false", K_LOWEST, MAX(acc, a), grad_extreme(B, a, y, g, dims, keep), "Largest over dims; NaN if any is.")
R(peak, NUM, "x:T dim:D? keepdim:b=false", K_LOWEST, MAX(acc, a), NONE, "max; of nothing -inf, or the lowest number.")
R(min,  NUM, "x:T dim:D? keepdim:b=false", K_HIGHEST, MIN(acc, a), grad_extreme(B, a, y, g, dims, keep), "Smallest over dims; NaN if any is.")
R(any,  LOG, "x:T dim:D? keepdim:b=false", K(0), acc || a, NONE, "Whether any is true.")
R(all,  LOG, "x:T dim:D? keepdim:b=false", K(1), acc && a, NONE, "Whether all are true.")

/* -- Views --------------------------------------------------------------- */
V(reshape,   "x:T size:L", view_reshape, LIST1, RESHAPE_LIKE(g, a), "The same elements in row-major order under another shape; one size may be -1.")
V(reshape_like, "x:T like:S", view_reshape_like, B_, RESHAPE_LIKE(g, a), "reshape to the shape of `like`.")
V(flatten,   "x:T first:d=1 last:d=-1", view_flatten, FLAT, RESHAPE_LIKE(g, a), "Dims first..last merged into one.")
V(permute,   "x:T dims:D", view_permute, X_, grad_permute(B, args, g), "Dims in another order.")
V(transpose, "x:T dim1:d dim2:d", view_transpose, X_, TRANSPOSE(g, args[1], args[2]), "Two dims exchanged.")
V(expand,    "x:T size:L", view_expand, LIST1, g, "Dims of 1 repeated to a size; -1 keeps a dim.")
V(expand_like, "x:T like:S", view_expand_like, B_, g, "expand to the shape of `like`.")
V(squeeze,   "x:T dim:D", view_squeeze, SQZ, RESHAPE_LIKE(g, a), "Dims of size 1 dropped.")
V(unsqueeze, "x:T dim:d", view_unsqueeze, PLUS1, RESHAPE_LIKE(g, a), "A dim of size 1 put in at `dim`.")
V(slice,     "x:T first:L last:L step:L drop:D", view_slice, SLICE, grad_slice(B, args, g), "Positions first..last (both included) of every dim by step; dims in drop vanish.")
V(flip,      "x:T dim:D", view_flip, A_, FLIP(g, args[1]), "Order reversed along dims.")
V(windows,   "x:T kernel:L stride:L dilation:L", view_windows, WINDOWS, grad_windows(B, args, g), "The windows over the last dims, which may overlap: a dim of counts for each, then the dims of a window.")

/* -- Generators ---------------------------------------------------------- */
G(full,   NUM, "size:L value:T dtype:y", K(0), "A tensor of one value.")
G(full_like, NUM, "like:S value:T dtype:y?", K(0), "`full` with the shape and dtype of `like`.")
G(arange, NUM, "first:T last:T step:T dtype:y", first + i * step, "first, first + step, ... up to and including last.")
G(rand_bits, NUM, "size:L draw:i", words, "Random 32-bit words as int64.")
G(rand,   FLT, "size:L dtype:y draw:i", uniform, "Uniform in [0, 1).")
G(randn,  FLT, "size:L dtype:y draw:i", normal, "Normal, mean 0 and deviation 1 (Box and Muller 1958).")
G(randint, NUM, "low:T high:T size:L dtype:y draw:i", whole, "Whole numbers low..high, both included.")

/* -- Special: own shape rule, kernel or expansion ------------------------- */
S(convert,  "x:T dtype:y", infer_convert, A_, NULL, grad_like, "The same values in another dtype.")
S(widen,    "x:T", infer_widen, A_, NULL, grad_like, "x; float16 and bfloat16 as float32, which they are computed in.")
S(unwiden,  "x:T like:S*", infer_unwiden, A_, NULL, grad_like, "x; float32 rounded to the float16 or bfloat16 that all of `like` are.")
S(fold_like, "x:T like:S", infer_fold_like, B_, NULL, grad_fold_like, "Broadcasting undone: summed and converted to the shape and dtype of `like`.")
S(expect,   "x:T ok:b text:s", infer_expect, A_, NULL, grad_like, "x, if ok holds when the plan is made; else the error `text`.")
S(detach,   "x:T", infer_same, A_, NULL, NULL, "The same values, constant to gradients.")
S(mean,     "x:T dim:D? keepdim:b=false", infer_reduce_flt, REDUCE, expand_mean, NULL, "Mean over dims.")
S(var,      "x:T dim:D? unbiased:b=true keepdim:b=false", infer_var, REDUCE, expand_var, grad_var, "Variance over dims, divided by n - 1 or (biased) n.")
S(std,      "x:T dim:D? unbiased:b=true keepdim:b=false", infer_var, REDUCE, expand_std, grad_std, "Square root of var.")
S(logsumexp, "x:T dim:D? keepdim:b=false", infer_reduce_flt, REDUCE, expand_logsumexp, grad_logsumexp, "log(sum(exp(x))) without overflow.")
S(norm,     "x:T p:r=2 dim:D? keepdim:b=false", infer_norm, REDUCE, expand_norm, grad_norm, "(sum |x|^p)^(1/p) over dims; p may be inf.")
S(argmax,   "x:T dim:d? keepdim:b=false base:i=1", infer_arg, ARG, NULL, NULL, "Position of the first largest (NaN is largest); counts from 1.")
S(argmin,   "x:T dim:d? keepdim:b=false base:i=1", infer_arg, ARG, NULL, NULL, "Position of the first smallest (NaN is smallest); counts from 1.")
S(softmax,  "x:T dim:d", infer_float_same, A_, expand_softmax, grad_softmax, "exp(x) / sum(exp(x)) along dim.")
S(log_softmax, "x:T dim:d", infer_float_same, A_, expand_log_softmax, grad_log_softmax, "log(softmax(x)).")
S(softmax_back, "y:T g:T dim:d", infer_row_back, A_, expand_softmax_back, NULL, "The gradient of x in softmax, whose result is y and has the gradient g.")
S(log_softmax_back, "y:T g:T dim:d", infer_row_back, A_, expand_log_softmax_back, NULL, "The gradient of x in log_softmax, whose result is y and has the gradient g.")
S(layer_norm, "x:T weight:T? bias:T? first:d=-1 eps:r=1e-05", infer_layer_norm, A_, expand_layer_norm, grad_layer_norm, "x less its mean, over sqrt(variance + eps), both taken over the dims from `first` on; times weight, plus bias.")
S(rms_norm, "x:T weight:T? bias:T? first:d=-1 eps:r=1e-05", infer_layer_norm, A_, expand_rms_norm, grad_rms_norm, "x / sqrt(mean(x^2) + eps), the mean over the dims from `first` on; times weight, plus bias.")
S(layer_norm_back, "x:T g:T weight:T? first:d=-1 eps:r=1e-05", infer_norm_back, A_, expand_layer_norm_back, NULL, "The gradient of x in layer_norm, where the result's is g.")
S(rms_norm_back, "x:T g:T weight:T? first:d=-1 eps:r=1e-05", infer_norm_back, A_, expand_rms_norm_back, NULL, "The gradient of x in rms_norm, where the result's is g.")
S(layer_norm_sums, "x:T g:T first:d=-1 eps:r=1e-05", infer_norm_sums, TWO, expand_layer_norm_sums, NULL, "The gradients of layer_norm's weight and bias, where its result has the gradient g, as two rows.")
S(rms_norm_sums, "x:T g:T first:d=-1 eps:r=1e-05", infer_norm_sums, TWO, expand_rms_norm_sums, NULL, "The same of rms_norm.")
S(batch_norm, "x:T mean:T var:T weight:T? bias:T? own:b=true eps:r=1e-05", infer_batch_norm, A_, expand_batch_norm, grad_batch_norm, "x less mean, over sqrt(var + eps), per position in dim 2; times weight, plus bias. To gradients mean and var are x's own, or (own = false) constants.")
S(batch_norm_stats, "x:T", infer_batch_stats, X_, expand_batch_norm_stats, NULL, "Mean and biased variance per position in dim 2, [2, channels, 1, ...]; of float16 and bfloat16 in float32.")
S(batch_norm_sums, "x:T g:T mean:T", infer_batch_sums, X_, expand_batch_norm_sums, NULL, "The sums of g (x - mean) and of g per position in dim 2, [2, channels, 1, ...]: what the gradients of batch_norm are made of.")
S(cumsum,   "x:T dim:d reverse:b=false", infer_cum, A_, NULL, grad_cumsum, "Running sum along dim; reverse: from the end.")
S(cumprod,  "x:T dim:d", infer_cum, A_, NULL, grad_cumprod, "Running product along dim.")
S(cummax,   "x:T dim:d", infer_cum_same, A_, NULL, NULL, "The largest so far along dim.")
S(cummin,   "x:T dim:d", infer_cum_same, A_, NULL, NULL, "The smallest so far along dim.")
S(logcumsumexp, "x:T dim:d reverse:b=false", infer_float_same, A_, NULL, grad_logcumsumexp, "The logarithm of the running sum of exp(x) along dim; reverse: from the end.")
S(matmul,   "x:T y:T trans_x:b=false trans_y:b=false", infer_matmul, MATMUL, NULL, grad_matmul, "Matrix product, batched; one-dim operands as vectors.")
S(conv,     "x:T w:T stride:L padding:L dilation:L groups:i=1", infer_conv, X_, expand_conv, grad_conv, "Convolution (cross-correlation) of x [rows, in, size...] with w [out, in / groups, kernel...].")
S(conv_weights, "x:T g:T w:S stride:L padding:L dilation:L groups:i=1", infer_conv_weights, C_, expand_conv_weights, grad_conv_weights, "The gradient of w in conv of x and w, whose result has the gradient g.")
S(conv_transpose, "x:T w:T stride:L padding:L output_padding:L dilation:L groups:i=1", infer_conv_transpose, X_, expand_conv_transpose, grad_conv_transpose, "The transpose of conv as a linear map; w is [in, out / groups, kernel...].")
S(pool,     "x:T dim:d kernel:i stride:i dilation:i=1 how:e=max", infer_pooled, X_, expand_pool, grad_pool, "The largest (how: max) or the sum of each window along dim.")
S(max_pool2, "x:T kernel1:i kernel2:i stride1:i stride2:i", infer_max_pool2, X_, expand_max_pool2, grad_max_pool2, "The largest of each dense window over the last two dims.")
S(max_pool2_back, "x:T y:T g:T kernel1:i kernel2:i stride1:i stride2:i", infer_max_pool2_back, A_, expand_max_pool2_back, NULL, "The gradient of x in max_pool2, whose result is y and has the gradient g: of equals the first in row-major order gets it.")
S(max_pool2_f32, "x:T kernel1:i kernel2:i stride1:i stride2:i", infer_max_pool2, X_, expand_max_pool2_f32, NULL, "What max_pool2 becomes in float32; call max_pool2.")
S(max_pool2_f32_back, "x:T y:T g:T kernel1:i kernel2:i stride1:i stride2:i", infer_max_pool2_back, A_, expand_max_pool2_f32_back, NULL, "What max_pool2_back becomes in float32; call max_pool2.")
S(outer,    "x:T y:T", infer_outer, TWO, expand_outer, NULL, "All products of two vectors.")
S(cat,      "xs:T* dim:d=1", infer_cat, X_, NULL, grad_cat, "Tensors one after another along dim.")
S(stack,    "xs:T* dim:d=1", infer_stack, PLUS1, expand_stack, NULL, "Tensors of equal shape along a new dim.")
S(pad,      "x:T pads:L value:r=0.0 mode:e=constant", infer_pad, X_, NULL, grad_pad, "Margins around x: {before, after} of the last dim, then of the one before it, ...")
S(tile,     "x:T counts:L", infer_tile, TILE, expand_tile, NULL, "x repeated counts times along each dim.")
S(update,   "x:T v:T first:L last:L step:L drop:D", infer_update, A_, NULL, grad_update, "x with v at the positions that slice would take.")
S(index_select, "x:T dim:d index:T base:i=1 what:e=index", infer_index_select, INDEX, NULL, grad_index_select, "Slices of x along dim at the positions in index; counts from 1.")
S(gather,   "x:T dim:d index:T base:i=1 what:e=index", infer_gather, C_, NULL, grad_gather, "out[i][j] = x[i][index[i][j]] for dim 2, and so on; counts from 1.")
S(index_add, "x:T dim:d index:T v:T base:i=1", infer_index_add, A_, NULL, grad_index_add, "x with the slices of v added at the positions in index.")
S(scatter_add, "x:T dim:d index:T v:T base:i=1", infer_scatter, A_, NULL, grad_scatter_add, "x with each v added where gather would read.")
S(index_copy, "x:T dim:d index:T v:T base:i=1", infer_index_copy, A_, expand_index_copy, NULL, "x with the slices at the positions in index replaced by those of v, which broadcasts; of several for one place the last stays.")
S(scatter,  "x:T dim:d index:T v:T base:i=1", infer_scatter, A_, NULL, grad_scatter, "x with each v put where gather would read; of several for one place the last stays.")
S(argsort,  "x:T dim:d=-1 descending:b=false base:i=1", infer_argsort, A_, NULL, NULL, "Positions along dim in rising order of what is there, equal ones as they come, NaN as the largest; counts from 1.")
S(cholesky, "x:T upper:b=false", infer_square, A_, NULL, grad_cholesky, "The lower triangular L of x = L L', for symmetric positive definite x (its lower triangle is read); upper: L'. Float32 and float64, on the CPU, as all of limn.linalg; matrices are the last two dims.")
S(solve,    "a:T b:T", infer_solve, MAX2, NULL, grad_solve, "x of a x = b, for square a; b is a matrix.")
S(solve_triangular, "a:T b:T upper:b", infer_solve, MAX2, NULL, grad_solve_triangular, "x of a x = b, of whose a one triangle is read.")
S(lu_parts, "x:T", infer_lu_parts, X_, NULL, grad_lu_parts, "[1, 3]: the sign, the logarithm of the size and the value of det(x).")
S(eigh_parts, "x:T", infer_eigh_parts, X_, NULL, grad_eigh_parts, "[n + 1, n]: the eigenvalues of symmetric x in rising order, then the vectors as rows.")
S(svd_parts, "x:T", infer_svd_parts, X_, NULL, grad_svd_parts, "U, S and V' of x = U S V', flat in a row.")
S(pinv,     "x:T rtol:r=-1.0", infer_pinv, X_, expand_pinv, grad_pinv, "The pseudo-inverse: singular values up to rtol times the largest count as 0.")
S(qr_parts, "x:T", infer_qr_parts, X_, NULL, grad_qr_parts, "Q and R of x = Q R, flat in a row.")
S(one_hot,  "x:T classes:i base:i=1", infer_one_hot, PLUS1, expand_one_hot, NULL, "int64 rows with a 1 at the position x; counts from 1.")
S(eye,      "n:i m:i? dtype:y", infer_eye, TWO, expand_eye, NULL, "Ones on the diagonal.")
S(tril,     "x:T k:i=0", infer_tri, A_, expand_tril, NULL, "x with zeros above diagonal k.")
S(triu,     "x:T k:i=0", infer_tri, A_, expand_triu, NULL, "x with zeros below diagonal k.")
S(masked_fill, "x:T mask:T value:T", infer_masked_fill, MAX2, expand_masked_fill, NULL, "value where mask holds, else x.")
S(rand_like,  "like:S draw:i", infer_rand_like, A_, expand_rand_like, NULL, "rand with the shape and dtype of `like`.")
S(randn_like, "like:S draw:i", infer_rand_like, A_, expand_randn_like, NULL, "randn with the shape and dtype of `like`.")

/* clang-format on */
#undef E1
#undef E2
#undef E3
#undef R
#undef V
#undef G
#undef S
#undef H
