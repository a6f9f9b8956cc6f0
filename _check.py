"""args: kind d lengths(comma) ; checks against fp64 for several configs"""
import sys, torch, time, math
sys.path.insert(0, ".")
import tilesmith, examples.attention as A, examples.matmul as MM
kind, d, lengths = sys.argv[1], int(sys.argv[2]), [int(x) for x in sys.argv[3].split(",")]
B = 128 if d <= 128 else 64
cfgs = [dict(block_sizes=[1,128,B],num_warps=8,num_stages=2,structure="warp_roles",pid_type=p) for p in ("flat","persistent_interleaved")]
if d <= 128: cfgs.append(dict(block_sizes=[1,64,64],num_warps=4,num_stages=3,structure="warp_roles",pid_type="flat"))
worst = 0.0
torch.manual_seed(0)
for n in lengths:
    q,k,v = (torch.randn(2,3,n,d,device="cuda",dtype=torch.bfloat16) for _ in range(3))
    s = q.double()@k.double().mT/math.sqrt(d)
    bias=None
    if kind=="causal": s = s.masked_fill(torch.ones(n,n,device="cuda",dtype=torch.bool).triu(1), float("-inf"))
    if kind=="bias":
        bias=torch.randn(2,3,n,n,device="cuda",dtype=torch.bfloat16); s = s+bias.double()
    want = torch.softmax(s,-1)@v.double()
    for c in cfgs:
        cfg = tilesmith.Config(**c)
        try:
            if kind=="fwd":
                f=[x.reshape(6,n,d) for x in (q,k,v)]
                b=A.attention_fwd.bind(tuple(f)); b.set_config(cfg); out,lse=b(*f)
                wl=(torch.logsumexp(s,-1)*math.log2(math.e)).reshape(6,n)
                el=float((lse.double()-wl).abs().max()); out=out.reshape(2,3,n,d)
                assert el<1e-2,("lse",el)
            else:
                kern={"plain":A.attention,"causal":A.causal_attention,"bias":A.biased_attention}[kind]
                args=(q,k,v)+((bias,) if bias is not None else ())
                b=kern.bind(args); b.set_config(cfg); out=b(*args)
            torch.cuda.synchronize()
            e=float((out.double()-want).norm()/want.norm()); same=True
            for _ in range(3):
                o2=b(*f)[0].reshape(2,3,n,d) if kind=="fwd" else b(*args)
                same&=bool((o2==out).all())
            worst=max(worst,e)
            if e>5e-3 or not same or e!=e: print("BAD",kind,d,n,c,e,same)
        except Exception as x:
            print("FAIL",kind,d,n,c,type(x).__name__,str(x)[:300])
print("done",kind,d,lengths,"worst",worst)
