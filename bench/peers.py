"""Times what layers.c times in PyTorch, by the same names:

    python bench/peers.py [THREADS [PART]]

Prints "name, eager, traced, compiled" with tabs, medians in ns ("-": cannot).
Never needed to build, test or measure limn; `make bench PEERS=1` runs it.
"""
import sys
import time
import warnings

import torch
from torch import nn
from torch.nn import functional as F

ROUNDS, SECONDS = 15, 0.02
warnings.filterwarnings("ignore")


def measure(f):
    # With one thread its own time counts, and not what else the machine does.
    one = torch.get_num_threads() == 1
    now = time.thread_time if one else time.perf_counter

    def once(n):
        start = now()
        for _ in range(n):
            f()
        return (now() - start) / n

    once(3)
    n = max(1, int(SECONDS / (once(3) + 1e-9)))
    return sorted(once(n) for _ in range(ROUNDS))[ROUNDS // 2] * 1e9


def try_to(f):
    try:
        return "%.1f" % measure(f())
    except Exception as e:  # a version without it, or no C++ compiler
        print(e, file=sys.stderr)
        return "-"


def cnn():
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(64 * 7 * 7, 10))


def block():
    return nn.TransformerEncoderLayer(256, 4, 1024, dropout=0,
                                      activation="gelu", batch_first=True)


class LSTM(nn.Module):
    """Its results without the last state."""

    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(128, 256)

    def forward(self, x):
        return self.lstm(x)[0]


def infer(make, *shape):
    """Three jobs: eager, traced, compiled."""
    x = torch.randn(*shape)

    def job(f):
        def run():
            with torch.inference_mode():
                f(x)
        return run

    def traced():
        with torch.no_grad():
            f = torch.jit.trace(make().eval(), x)
            return job(torch.jit.optimize_for_inference(torch.jit.freeze(f)))
    return (lambda: job(make().eval()), traced,
            lambda: job(torch.compile(make().eval())))


def step(make, criterion, x, t):
    def job(wrap):
        net = make().train()
        opt = torch.optim.Adam(net.parameters(), lr=1e-3)
        f = wrap(net)

        def run():
            opt.zero_grad()
            criterion(f(x), t).backward()
            opt.step()
        return run
    return (lambda: job(lambda net: net),
            lambda: job(lambda net: torch.jit.trace(net, x)),
            lambda: job(torch.compile))


def forward(f, *args):
    def job(g):
        def run():
            with torch.inference_mode():
                g(*args)
        return run
    return (lambda: job(f), lambda: job(torch.jit.trace(f, args)),
            lambda: job(torch.compile(f)))


def back(f, *args):
    args = [a.requires_grad_() for a in args]
    g = torch.randn_like(args[0])

    def job(h):
        return lambda: torch.autograd.grad(h(*args), args, g)
    return (lambda: job(f), lambda: job(torch.jit.trace(f, args)),
            lambda: job(torch.compile(f)))


def softmax(x):
    return x.softmax(-1)


def layer_norm(x, w, b):
    return F.layer_norm(x, (1024,), w, b)


def batch_norm(x, w, b):
    return F.batch_norm(x, None, None, w, b, training=True)


ROWS, IMAGES = (4096, 1024), (64, 64, 32, 32)
CASES = {
    "CNN, batch 32": lambda: infer(cnn, 32, 1, 28, 28),
    "CNN, batch 32, training step": lambda: step(
        cnn, F.cross_entropy, torch.randn(32, 1, 28, 28),
        torch.randint(0, 10, (32,))),
    "transformer block, batch 1": lambda: infer(block, 1, 128, 256),
    "transformer block, batch 8": lambda: infer(block, 8, 128, 256),
    "transformer block, batch 8, training step": lambda: step(
        block, F.mse_loss, torch.randn(8, 128, 256),
        torch.randn(8, 128, 256)),
    "LSTM, 64 steps, batch 1": lambda: infer(LSTM, 64, 1, 128),
    "LSTM, 64 steps, batch 32": lambda: infer(LSTM, 64, 32, 128),
    "LSTM, 64 steps, batch 1, training step": lambda: step(
        LSTM, F.mse_loss, torch.randn(64, 1, 128), torch.randn(64, 1, 256)),
    "LSTM, 64 steps, batch 32, training step": lambda: step(
        LSTM, F.mse_loss, torch.randn(64, 32, 128), torch.randn(64, 32, 256)),
    "softmax, 4 M": lambda: forward(softmax, torch.randn(ROWS)),
    "softmax, 4 M, gradient": lambda: back(softmax, torch.randn(ROWS)),
    "layer norm, 4 M": lambda: forward(
        layer_norm, torch.randn(ROWS), torch.ones(1024), torch.ones(1024)),
    "layer norm, 4 M, gradient": lambda: back(
        layer_norm, torch.randn(ROWS), torch.ones(1024), torch.ones(1024)),
    "batch norm, 4 M": lambda: forward(
        batch_norm, torch.randn(IMAGES), torch.ones(64), torch.ones(64)),
    "batch norm, 4 M, gradient": lambda: back(
        batch_norm, torch.randn(IMAGES), torch.ones(64), torch.ones(64)),
}


def main():
    threads = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    part = sys.argv[2] if len(sys.argv) > 2 else ""
    torch.set_num_threads(threads)
    for name, make in CASES.items():
        if part not in name:
            continue
        torch.manual_seed(1)
        torch._dynamo.reset()
        jobs = [try_to(f) for f in make()]
        print(name + (", %d threads" % threads if threads > 1 else ""),
              *jobs, sep="\t", flush=True)


main()
