#!/bin/busybox sh
# The guest's first process: mounts what a system has, runs the tests, leaves its results in /results.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin HOME=/root NO_COLOR=1
/bin/busybox --install -s 2>/dev/null
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev 2>/dev/null
mkdir -p /dev/shm /dev/pts
ln -s /proc/self/fd /dev/fd
ln -s fd/0 /dev/stdin
ln -s fd/1 /dev/stdout
ln -s fd/2 /dev/stderr
mount -t tmpfs shm /dev/shm
mount -t devpts pts /dev/pts
mount -t tmpfs run /run
mount -t cgroup2 cgroup /sys/fs/cgroup
ifconfig lo 127.0.0.1 up
hostname guest
for module in loop overlay xfs btrfs; do
    modprobe "$module" || echo "test-kernels: no module $module"
done
cut -d ' ' -f 1 /proc/uptime >/results/booted

cp /sys/kernel/btf/vmlinux /results/btf

# The paths of the programs, and which tests to run.
. /results/programs
"$PROBE" doctor --json >/results/doctor.json
"$PROBE" doctor
export ROUNDS=1 SYNC_GENERATOR="$GENERATOR"
status=0
while read -r tests; do
    "$tests" --test-threads=1 --nocapture $ONLY </dev/null || status=$?
done </results/tests
echo "$status" >/results/status

mount -o remount,ro /
poweroff -f
