for d in 128 64 256; do
  HAND=1 ONE_LOOP=0 TILESMITH_CACHE_DIR=/tmp/tsc_$d timeout 140 python benchmarks/backward_trial.py $d 01 > /tmp/o_$d.txt 2>&1 &
  ONE_LOOP=1 TILESMITH_CACHE_DIR=/tmp/tsc1_$d timeout 140 python benchmarks/backward_trial.py $d 1 > /tmp/o1_$d.txt 2>&1 &
done
wait
tail -n 12 /tmp/o_128.txt /tmp/o1_128.txt /tmp/o_64.txt /tmp/o1_64.txt /tmp/o_256.txt /tmp/o1_256.txt
