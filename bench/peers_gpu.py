"""Prints what a training step of the MNIST CNN takes in PyTorch on a GPU, in
nanoseconds: the case of bench/gpu.lua, where PyTorch is installed with CUDA."""
import time

import torch
from torch import nn

net = nn.Sequential(
    nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
    nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
    nn.Flatten(), nn.Linear(64 * 49, 128), nn.ReLU(),
    nn.Linear(128, 10)).cuda()
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
x = torch.randn(128, 1, 28, 28, device="cuda")
t = torch.randint(0, 10, (128,), device="cuda")


def step():
    opt.zero_grad(set_to_none=True)
    nn.functional.cross_entropy(net(x), t).backward()
    opt.step()


torch.backends.cuda.matmul.allow_tf32 = False
torch.backends.cudnn.allow_tf32 = False
for _ in range(20):
    step()
times = []
for _ in range(9):
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(50):
        step()
    torch.cuda.synchronize()
    times.append((time.perf_counter() - start) / 50 * 1e9)
print(sorted(times)[4])
