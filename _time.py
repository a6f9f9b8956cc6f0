import sys, torch, time, math
sys.path.insert(0, ".")
import tilesmith, examples.attention as A
from torch.nn.attention import SDPBackend, sdpa_kernel
from statistics import median
shape=tuple(int(x) for x in sys.argv[1].split("x")); kind=sys.argv[2]; cfgs=eval(sys.argv[3])
q,k,v=(torch.randn(*shape,device="cuda",dtype=torch.bfloat16) for _ in range(3))
flush=torch.empty(3<<28,device="cuda",dtype=torch.int32)
def cudnn():
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        return torch.nn.functional.scaled_dot_product_attention(q,k,v,is_causal=kind=="causal")
runs={"cudnn":cudnn}
kern={"plain":A.attention,"causal":A.causal_attention}[kind]
b0=kern.bind((q,k,v))
def make(c):
    b=kern.bind((q,k,v)); b.set_config(tilesmith.Config(**c))
    f=b.compile_config(tilesmith.Config(**c)) if False else None
    return b
want=cudnn().float()
for i,c in enumerate(cfgs):
    try:
        t=time.time()
        if c=="hand":
            from benchmarks.hand_written.warp_roles.attention import attention
            f=lambda: attention(q,k,v,is_causal=kind=="causal")
        else:
            f0=b0.compile_config(tilesmith.Config(**c)); f=(lambda f0=f0: f0(q,k,v))
        o=f(); torch.cuda.synchronize(); t=time.time()-t
        e=float((o.float()-want).norm()/want.norm())
        runs[f"{i}:{c} compile {t:.1f}s err {e:.1e}"]=f
    except Exception as x: print("FAIL",c,type(x).__name__,str(x)[:400])
times={n:[] for n in runs}
for _ in range(6):
    for n,f in runs.items():
        for _ in range(3):
            flush.zero_(); s,e=torch.cuda.Event(enable_timing=True),torch.cuda.Event(enable_timing=True)
            s.record(); f(); e.record(); torch.cuda.synchronize(); times[n].append(s.elapsed_time(e))
fl=4*shape[0]*shape[1]*shape[2]**2*shape[3]*(0.5 if kind=="causal" else 1)
base=median(times["cudnn"])
for n,t in times.items():
    m=median(t); print(f"{shape} {kind} {m:.4f} ms {fl/m/1e9:.0f} TF  vs cudnn {base/m:.3f}  {n}")
