import fcntl, os, sys, time
from statistics import median
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention
from examples import attention_backward as ab
from tilesmith import Config

SHAPES = {128: (4, 32, 4096, 128), 64: (8, 32, 4096, 64), 256: (4, 16, 4096, 256)}
F, P = "flat", "persistent_interleaved"


def cfg(blocks, stages, pid, order=(1, 0), group=1, warps=8):
    return Config(block_sizes=[1, *blocks], num_stages=stages, pid_type=pid, loop_orders=[list(order)],
                  l2_groupings=[group], num_warps=warps, structure="warp_roles")


def configs(d, c):
    T = (0, 1)
    if d == 128:
        if not c:
            return {"q": [cfg((128, 128), 2, F), cfg((128, 64), 2, P), cfg((128, 64), 3, F)],
                    "kv": [cfg((128, 64), 2, F), cfg((128, 64), 2, P), cfg((128, 64), 3, F)]}
        return {"q": [cfg((128, 128), 2, F, T, 4), cfg((128, 128), 2, F, (1, 0)), cfg((128, 64), 2, P, T, 4)],
                "kv": [cfg((128, 64), 2, F), cfg((128, 64), 2, F, T, 4), cfg((128, 64), 2, P)]}
    if d == 64:
        if not c:
            return {"q": [cfg((128, 128), 2, F), cfg((128, 128), 2, P), cfg((192, 64), 3, F, warps=12)],
                    "kv": [cfg((128, 128), 2, F), cfg((128, 128), 2, P), cfg((128, 64), 3, F)]}
        return {"q": [cfg((128, 128), 2, F, T, 8), cfg((128, 128), 2, F), cfg((128, 128), 2, P, T, 8)],
                "kv": [cfg((128, 128), 2, F), cfg((128, 128), 2, F, T, 8), cfg((128, 64), 3, F)]}
    if not c:
        return {"q": [cfg((128, 64), 2, F)], "k": [cfg((128, 64), 2, F), cfg((128, 32), 2, F)], "v": [cfg((128, 64), 2, F)]}
    return {"q": [cfg((128, 64), 2, F, T, 2)], "k": [cfg((128, 64), 2, F), cfg((128, 64), 2, F, T, 2)],
            "v": [cfg((128, 64), 2, F), cfg((128, 64), 2, F, T, 2)]}


def main():
    d, causals = int(sys.argv[1]), [bool(int(x)) for x in sys.argv[2]]
    shape = SHAPES[d]
    torch.manual_seed(0)
    q, k, v, go = (torch.randn(*shape, device="cuda", dtype=torch.bfloat16) for _ in range(4))
    flat = [t.flatten(0, 1) for t in (go, q, k, v)]
    b, h, n, _ = shape
    lse = torch.zeros(b * h, n, device="cuda")
    made = {}
    t0 = time.time()
    for c in causals:
        for kind, items in configs(d, c).items():
            kern = {"q": ab.query_gradients, "kv": ab.key_value_gradients, "k": ab.key_gradients, "v": ab.value_gradients}[kind]
            args = (flat[0], flat[1], flat[2], lse, c) if kind == "v" else (*flat, lse, lse, c)
            bound = kern.bind(args)
            for i, item in enumerate(items):
                try:
                    run = bound.compile_config(item)
                    run(*args)
                    made[c, kind, i] = run
                except Exception as e:
                    print("FAILED", d, c, kind, i, str(e)[:200])
    torch.cuda.synchronize()
    print(f"# {d} one_loop={os.environ.get('ONE_LOOP')} compiled {len(made)} in {time.time() - t0:.0f} s", flush=True)
    with open("/tmp/gpu.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for c in causals:
            measure(d, c, shape, (q, k, v, go), flat, made)


def measure(d, c, shape, tensors, flat, made):
    q, k, v, go = tensors
    b, h, n, _ = shape
    leaves = [t.detach().requires_grad_() for t in (q, k, v)]
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        out = scaled_dot_product_attention(*leaves, is_causal=c)
        grads = [g.flatten(0, 1) for g in torch.autograd.grad(out, leaves, go, retain_graph=True)]
    out_flat = out.detach().flatten(0, 1)
    lse = torch.empty(b * h, n, device="cuda")
    for i in range(b * h):
        s = (flat[1][i].float() @ flat[2][i].float().T) * d**-0.5
        if c:
            s.masked_fill_(torch.ones(n, n, device="cuda", dtype=torch.bool).triu(1), float("-inf"))
        lse[i] = torch.logsumexp(s, -1) * ab.LOG2_E
    inner = ab.row_products(flat[0], out_flat)
    calls, errors = {}, {}
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        calls["cudnn"] = lambda: torch.autograd.grad(out, leaves, go, retain_graph=True)
    calls["delta"] = lambda: ab.row_products(flat[0], out_flat)
    wanted = {"q": grads[:1], "kv": grads[1:], "k": grads[1:2], "v": grads[2:]}
    for (cc, kind, i), run in made.items():
        if cc != c:
            continue
        args = (flat[0], flat[1], flat[2], lse, c) if kind == "v" else (*flat, lse, inner, c)
        found = run(*args)
        found = found if isinstance(found, tuple) else (found,)
        errors[f"{kind}{i}"] = max(float((f.float() - w.float()).norm() / w.float().norm()) for f, w in zip(found, wanted[kind]))
        calls[f"{kind}{i}"] = lambda run=run, args=args: run(*args)
    if os.environ.get("HAND") == "1":
        from benchmarks.hand_written.warp_roles.attention import attention_with_lse
        from benchmarks.hand_written.warp_roles.attention_gradients import attention_backward, repeatable_attention_backward
        o, l = attention_with_lse(q, k, v, is_causal=c)
        whole = (q, k, v, o, go)
        calls["hand fused"] = lambda: attention_backward(whole, l, is_causal=c)
        calls["hand repeatable"] = lambda: repeatable_attention_backward(whole, l, is_causal=c)
        for name in ("hand fused", "hand repeatable"):
            calls[name]()
    flushed = torch.empty(1 << 28, dtype=torch.int32, device="cuda")
    samples = {name: [] for name in calls}
    for turn in range(5):
        for name in sorted(calls, reverse=bool(turn % 2)):
            for _ in range(3):
                flushed.zero_()
                begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                begin.record()
                calls[name]()
                end.record()
                torch.cuda.synchronize()
                samples[name].append(begin.elapsed_time(end))
    times = {name: median(x) for name, x in samples.items()}
    best = times["delta"] + sum(min(t for name, t in times.items() if name[:-1] == kind) for kind in {name[:-1] for name in errors})
    print(d, "causal" if c else "plain", f"one_loop={os.environ.get('ONE_LOOP')}", f"best sum {best:.3f} = {times['cudnn'] / best:.3f} of cuDNN")
    print("   ", ", ".join(f"{name} {t:.3f}" + (f" ({errors[name]:.0e})" if name in errors else "") for name, t in times.items()), flush=True)


main()
