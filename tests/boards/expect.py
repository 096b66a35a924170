#!/usr/bin/env python3
"""expect.py FOLDER [INTERFACE=IP...]: what a kubelet would report from a captured tree.

Prints expected.json. Written from the kubelet's rules and not from nodelet's parsers,
so that the two can disagree; needed only when a tree is captured anew. A key that is
missing means "not known". The addresses of interfaces are in no file: name them.
"""
import ipaddress
import json
import os
import re
import sys

root, addresses = sys.argv[1], [pair.split("=") for pair in sys.argv[2:]]
want = {}


def path(name):
    return os.path.join(root, name)


def text(name):
    """A file, or None; links are relative and stay inside."""
    try:
        with open(path(name), encoding="utf-8") as file:
            return file.read()
    except (FileNotFoundError, NotADirectoryError):
        return None


def names(folder, pattern):
    if not os.path.isdir(path(folder)):
        return []
    return sorted(name for name in os.listdir(path(folder)) if re.fullmatch(pattern, name))


def quantity(amount):
    for suffix, unit in (("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10)):
        if amount and amount % unit == 0:
            return f"{amount // unit}{suffix}"
    return str(amount)


def numbers_of(mask):
    """"0-2,5" -> 0 1 2 5."""
    found = []
    for part in mask.strip().split(","):
        ends = [int(end) for end in part.split("-")]
        found += range(ends[0], ends[-1] + 1)
    return found


# Memory, swap.
meminfo = dict(re.findall(r"^(\S+):\s+(\d+) kB$", text("proc/meminfo"), re.M))
want["memoryCapacityBytes"] = int(meminfo["MemTotal"]) * 1024
want["memoryCapacity"] = quantity(want["memoryCapacityBytes"])
want["memAvailableKiB"] = int(meminfo["MemAvailable"])
# arm without swap lines would be a key less, and a kubelet that does not start.
want["swapCapacityBytes"] = int(meminfo["SwapTotal"]) * 1024
want["nodeInfoSwapReported"] = want["swapCapacityBytes"] != 0
want["meminfoHugepagesizeKiB"] = int(meminfo["Hugepagesize"]) if "Hugepagesize" in meminfo else None
pages = "sys/kernel/mm/hugepages"
want["hugepages"] = {
    f"hugepages-{quantity(size * 1024)}": quantity(size * 1024 * int(text(f"{pages}/{name}/nr_hugepages")))
    for name in names(pages, r"hugepages-\d+kB")
    for size in [int(name[len("hugepages-"):-len("kB")])]
}

# CPUs.
cpus = "sys/devices/system/cpu"
online = numbers_of(text(f"{cpus}/online"))
want["cpuMasks"], want["onlineCount"] = {"online": online}, len(online)
nodes = names("sys/devices/system/node", r"node\d+")
if nodes:
    # Through the links nodeN/cpuM, which nodelet does not follow.
    counted = [
        cpu
        for node in nodes
        for cpu in names(f"sys/devices/system/node/{node}", r"cpu\d+")
        if int(cpu[3:]) in online
        and all(
            text(f"sys/devices/system/node/{node}/{cpu}/topology/{file}") is not None
            for file in ("core_id", "physical_package_id")
        )
    ]
    want["cpuRule"] = "numa: online cpuN links under node*/ that have topology"
else:
    counted = names(cpus, r"cpu\d+")
    want["cpuRule"] = "flat: every cpuN folder"
want["cpu"] = str(len(counted))

# Identities.
ids = [text(name) for name in ("etc/machine-id", "var/lib/dbus/machine-id")]
want["machineID"] = next((i.strip() for i in ids if i is not None), "")
for name in ("sys/class/dmi/id/product_uuid", "proc/device-tree/system-id", "proc/device-tree/vm,uuid", "etc/machine-id"):
    if text(name) is not None:
        want["systemUUID"], want["systemUUIDFrom"] = text(name).rstrip("\0").strip(), name
        break
else:
    want["systemUUID"] = ""
want["bootID"] = text("proc/sys/kernel/random/boot_id").strip()
want["kernelVersion"] = text("proc/sys/kernel/osrelease").strip()
release = text("etc/os-release") or text("usr/lib/os-release")
pretty = release and re.search("PRETTY_NAME=(.*)", release)
want["osImage"] = "Unknown" if release is None else pretty.group(1).strip('"') if pretty else "Linux"

# Routes.
default4, default6 = [], []
for line in text("proc/net/route").splitlines()[1:]:
    interface, destination, gateway, _, _, _, metric, mask = line.split()[:8]
    if destination == "00000000":
        dotted = [str(ipaddress.IPv4Address(bytes.fromhex(hex)[::-1])) for hex in (gateway, mask)]
        default4.append({"interface": interface, "gateway": dotted[0], "mask": dotted[1], "metric": int(metric)})
for line in (text("proc/net/ipv6_route") or "").splitlines():
    fields = line.split()
    if fields[0] == "0" * 32 and fields[4] != "0" * 32:
        gateway = str(ipaddress.IPv6Address(bytes.fromhex(fields[4])))
        default6.append({"interface": fields[9], "gateway": gateway, "metric": int(fields[5], 16)})
want["defaultRoutesIPv4"], want["defaultRoutesIPv6"] = default4, default6
first = [(route, "IPv4") for route in default4] + [(route, "IPv6") for route in default6]
want["defaultRoute"] = (
    {"interface": first[0][0]["interface"], "gateway": first[0][0]["gateway"], "family": first[0][1]} if first else None
)
if addresses:
    want["interfaceAddresses"] = {}
    for interface, ip in addresses:
        want["interfaceAddresses"].setdefault(interface, []).append(ip)
    want["nodeInternalIPInterface"] = default4[0]["interface"]
    want["nodeInternalIP"] = want["interfaceAddresses"][default4[0]["interface"]][0]

# Pressure.
want["psi"] = {}
for resource in names("proc/pressure", "cpu|memory|io|irq"):
    want["psi"][resource] = {
        line.split()[0]: {
            name: int(value) if name == "total" else float(value)
            for name, value in (pair.split("=") for pair in line.split()[1:])
        }
        for line in text(f"proc/pressure/{resource}").splitlines()
    }

# Mounts and cgroups.
mounts = [line.split() for line in text("proc/mounts").splitlines()]
on_root = [mount for mount in mounts if mount[1] == "/"]
want["rootMount"] = {
    "device": on_root[-1][0],
    "fstype": on_root[-1][2],
    "readOnly": "ro" in on_root[-1][3].split(","),
    "mountsOnRoot": len(on_root),
}
types = {mount[1]: mount[2] for mount in mounts}
if types.get("/sys/fs/cgroup") == "cgroup2":
    want["cgroupMode"] = "v2"
elif types.get("/sys/fs/cgroup/unified") == "cgroup2":
    want["cgroupMode"] = "hybrid"
else:
    want["cgroupMode"] = "v1" if {"cgroup", "cgroup2"} & set(types.values()) else "none"
controllers = [line.split() for line in text("proc/cgroups").splitlines()[1:]]
want["procCgroups"] = {c[0]: {"hierarchy": int(c[1]), "enabled": c[3] == "1"} for c in controllers}
memory = want["procCgroups"].get("memory")
want["procCgroupsMemory"] = "absent" if memory is None else "enabled" if memory["enabled"] else "disabled"
if want["cgroupMode"] == "v2":
    want["cgroupControllers"] = text("sys/fs/cgroup/cgroup.controllers").split()
    want["memoryControllerUsable"] = "memory" in want["cgroupControllers"]
    stat = dict(line.split() for line in text("sys/fs/cgroup/memory.stat").splitlines())
    usage = int(stat["anon"]) + int(stat["file"])
    want["memcg"] = {"usage": usage, "workingSet": max(0, usage - int(stat["inactive_file"]))}
else:
    want["memoryControllerUsable"] = memory is not None and memory["enabled"] and memory["hierarchy"] != 0
    stat = dict(line.split() for line in text("sys/fs/cgroup/memory/memory.stat").splitlines())
    usage = int(text("sys/fs/cgroup/memory/memory.usage_in_bytes"))
    want["memcg"] = {"usage": usage, "workingSet": max(0, usage - int(stat["total_inactive_file"]))}

# Processes.
limits = [text(f"proc/sys/kernel/{name}") for name in ("pid_max", "threads-max")]
want["maxPID"] = min(int(limit) for limit in limits if limit)
want["numRunningProcesses"] = int(text("proc/loadavg").split()[3].split("/")[1])

print(json.dumps(want, indent=2))
