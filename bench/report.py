"""Calls the measurements in turn and prints the table of bench/README.md. `bench/run` is the way to start it."""
import statistics
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
UNDERTONE = [str(HERE.parent / "target" / "release" / "undertone-bench")]
REPEATS = 5


def call(command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()


def rival(name, kind):
    return [sys.executable, str(HERE / "rivals" / f"{name}_rival.py"), kind]


def network(kind):
    """Client-rounds per second of the three, each called in turn so that a noisy minute hits all alike."""
    rates = {"undertone": [], "numpy": [], "jax": []}
    for _ in range(REPEATS):
        rates["undertone"].append(float(call([*UNDERTONE, "network", kind])[0]))
        for name in ("numpy", "jax"):
            rates[name].append(float(call(rival(name, kind))[0]))
    return {name: statistics.median(values) for name, values in rates.items()}


def clients():
    """Cost of a client-round at K = 1000 and 1,000,000, memory, and bandwidth beside a plain copy."""
    small, large, copy = [], [], []
    for _ in range(REPEATS):
        copy.append(float(call([*UNDERTONE, "copy"])[0]))
        small.append([float(v) for v in call([*UNDERTONE, "clients", "1000"])])
        large.append([float(v) for v in call([*UNDERTONE, "clients", "1000000"])])
    median = lambda rows, i: statistics.median(row[i] for row in rows)
    return {
        "small": median(small, 1), "large": median(large, 1), "bandwidth": median(large, 2),
        "memory": median(large, 3), "copy": statistics.median(copy),
    }


def peers():
    """Rounds per second of peers, beside what the disk alone allows; memory; bytes on the wire."""
    kinds = {
        "memory": ["memory"], "fdatasync": ["fdatasync"], "plain": ["loopback", "8", "fast", "plain"],
        "durable": ["loopback", "8", "fast", "durable"], "secure": ["loopback", "8", "secure", "durable"],
        "large": ["loopback", "10000", "fast", "plain"], "large secure": ["loopback", "10000", "secure", "plain"],
    }
    rows = {name: [] for name in kinds}
    for _ in range(REPEATS):
        for name, command in kinds.items():
            rows[name].append([float(v) for v in call([*UNDERTONE, *command])])
    return {name: [statistics.median(column) for column in zip(*values)] for name, values in rows.items()}


def print_peers():
    found = peers()
    print("peers, rounds per second (random graph of mean degree 3)")
    print(f"  50 in memory, one thread, P 8                     {found['memory'][0]:8.0f}")
    rate, memory, wire = found["plain"]
    print(f"  10 processes over loopback, P 8, no durability    {rate:8.0f}   {memory:.1f} MB each, {wire:.0f} bytes on the wire a message")
    share = found["durable"][0] / found["fdatasync"][0]
    print(f"  the same, durable                                 {found['durable'][0]:8.0f}   {share:.2f} of fdatasync alone by ten writers ({found['fdatasync'][0]:.0f})")
    print(f"  the same, durable and with secure noise           {found['secure'][0]:8.0f}")
    rate, memory, wire = found["large"]
    print(f"  10 processes, P 10,000, no durability             {rate:8.0f}   {memory:.1f} MB each, {wire:.0f} bytes on the wire a message")
    print(f"  the same with secure noise                        {found['large secure'][0]:8.0f}")


def main():
    if sys.argv[1:] == ["peers"]:
        return print_peers()
    for kind, title in [("own", "every trial with its own data"), ("shared", "all trials on the same data")]:
        rates = network(kind)
        print(f"K 50, M 50, P 8, LAD, private, 200 rounds, 100 trials; {title} (client-rounds/s)")
        for name, rate in rates.items():
            ratio = rates["undertone"] / rate
            print(f"  {name:<10} {rate:10.2e}   undertone is {ratio:5.2f} times as fast")
    found = clients()
    print("one million clients in one process (M 50, P 8, mean degree 3)")
    print(f"  memory                 {found['memory']:.3f} times the bytes of the data")
    print(f"  cost of a client-round {found['large']:.0f} ns, {found['large'] / found['small']:.2f} times that at K = 1000")
    share = found["bandwidth"] / found["copy"]
    print(f"  bandwidth              {found['bandwidth'] / 1e9:.1f} GB/s, {share:.2f} of a plain copy ({found['copy'] / 1e9:.1f} GB/s)")
    sample, secure, fast = (statistics.median(v) for v in zip(*[map(float, call([*UNDERTONE, "noise"])) for _ in range(REPEATS)]))
    print("noise (ns)")
    print(f"  exact discrete Gaussian, a sample      {sample:.0f}")
    print(f"  secure release, a coordinate           {secure:.0f}")
    print(f"  fast release, a coordinate             {fast:.1f}")
    few, many = (statistics.median(v) for v in zip(*[map(float, call([*UNDERTONE, "masks"])) for _ in range(REPEATS)]))
    print("masks, milliseconds more for a secure release of 8 coordinates")
    print(f"  among 50 clients                       {few:.3f}")
    print(f"  among 1000 clients                     {many:.3f}")
    print_peers()


if __name__ == "__main__":
    main()
