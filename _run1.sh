cd _roles; export PYTHONPATH=$PWD/src PYTHONUNBUFFERED=1 TILESMITH_CACHE_DIR=/tmp/tsc
L=1,63,64,65,127,129,577,1024
for a in "plain 128 $L" "causal 128 $L" "fwd 64 $L" "bias 128 $L" "plain 64 $L" "causal 64 $L" "plain 256 64,65,577" "fwd 128 $L"; do timeout 150 python3 _check.py $a > /tmp/c_$(echo $a|tr ' ' _).log 2>&1 & done; wait
tail -n 4 /tmp/c_*.log
P="structure='warp_roles'"
timeout 90 python3 _time.py 4x32x4096x128 plain "['hand',dict(block_sizes=[1,128,128],num_warps=8,num_stages=2,pid_type='flat',$P),dict(block_sizes=[1,128,128],num_warps=8,num_stages=2,pid_type='persistent_interleaved',$P),dict(block_sizes=[1,128,128],num_warps=8,num_stages=2,pid_type='persistent_interleaved',loop_orders=[[1,0]],$P),dict(block_sizes=[1,128,64],num_warps=8,num_stages=4,pid_type='flat',$P)]"
timeout 90 python3 _time.py 4x32x4096x128 causal "['hand',dict(block_sizes=[1,128,128],num_warps=8,num_stages=2,pid_type='flat',$P),dict(block_sizes=[1,128,128],num_warps=8,num_stages=2,pid_type='persistent_interleaved',$P),dict(block_sizes=[1,128,128],num_warps=8,num_stages=2,pid_type='flat',loop_orders=[[1,0]],$P)]"
timeout 90 python3 _time.py 8x32x4096x64 plain "['hand',dict(block_sizes=[1,128,128],num_warps=8,num_stages=3,pid_type='flat',$P),dict(block_sizes=[1,128,128],num_warps=8,num_stages=3,pid_type='persistent_interleaved',$P)]"
timeout 90 python3 _time.py 4x16x4096x256 plain "['hand',dict(block_sizes=[1,128,64],num_warps=8,num_stages=2,pid_type='flat',$P)]"
