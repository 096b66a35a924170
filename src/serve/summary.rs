//! `/stats/summary`: the node's part of `kubelet/pkg/apis/stats/v1alpha1` Summary. There are no
//! pods.

use serde_json::{Value, json};

use super::readings::{Readings, booted, wall};
use crate::host::usage::{NODE_INTERFACE, Traffic};
use crate::kube::facts::FsStats;
use crate::kube::instant::Now;
use crate::kube::object;
use crate::kube::time::Wall;

/// The summary. `is_short`: CPU, memory and swap alone. What cannot be read is left out, and so is
/// a file system whose amounts are old (`is_old`). A time that cannot be right is null.
pub(super) fn summary(readings: &mut Readings, is_short: bool, now: Now) -> String {
    let (usage, age) = readings.usage(now.mono);
    let time = |wall: Option<Wall>| wall.map(|wall| wall.time());
    let read = time(wall(now).map(|wall| wall.before(age)));
    let started = time(booted(now));
    let mut node = json!({"nodeName": readings.node_name, "startTime": started});
    let mut set = |member, value| object::set(&mut node, &[member], value);
    if let Ok(cpu) = usage.cpu {
        let total = u64::try_from(cpu.as_nanos()).unwrap_or(u64::MAX);
        let mut cpu = json!({"time": read, "usageCoreNanoSeconds": total});
        if let Some(rate) = readings.nano_cores() {
            object::set(&mut cpu, &["usageNanoCores"], json!(rate));
        }
        set("cpu", cpu);
    }
    if let (Ok(working_set), Ok(total)) = (usage.working_set_bytes, usage.memory_bytes) {
        let available = total.saturating_sub(working_set);
        let memory = json!({
            "time": read, "availableBytes": available, "workingSetBytes": working_set,
        });
        set("memory", memory);
    }
    if let Ok((total, free)) = usage.swap_bytes {
        let used = total.saturating_sub(free);
        set("swap", json!({"time": read, "swapAvailableBytes": free, "swapUsageBytes": used}));
    }
    if !is_short {
        let now = time(wall(now));
        if let Ok(traffic) = readings.host.traffic() {
            set("network", network(&traffic, &now));
        }
        if let Ok(Some(fs)) = readings.host.node_fs()
            && !fs.is_old
        {
            set("fs", file_system(&fs, &now));
        }
    }
    json!({"node": node, "pods": []}).to_string()
}

fn network(traffic: &[Traffic], time: &Option<String>) -> Value {
    let interface = |traffic: &Traffic| {
        json!({
            "name": traffic.name,
            "rxBytes": traffic.rx.0,
            "rxErrors": traffic.rx.1,
            "txBytes": traffic.tx.0,
            "txErrors": traffic.tx.1,
        })
    };
    let of_node = traffic.iter().find(|traffic| traffic.name == NODE_INTERFACE);
    let mut network = of_node.map_or_else(|| json!({"name": ""}), interface);
    object::set(&mut network, &["time"], json!(time));
    let interfaces = traffic.iter().map(interface).collect();
    object::set(&mut network, &["interfaces"], Value::Array(interfaces));
    network
}

/// The amounts of the file system of `--root-dir`. Space that is reserved for root is neither used
/// nor available, as for a kubelet and `df`. Without inode accounting the three numbers of inodes
/// are 0.
fn file_system(fs: &FsStats, time: &Option<String>) -> Value {
    json!({
        "time": time,
        "availableBytes": fs.available_bytes,
        "capacityBytes": fs.capacity_bytes,
        "usedBytes": fs.capacity_bytes.saturating_sub(fs.free_bytes),
        "inodesFree": fs.inodes_free,
        "inodes": fs.inodes,
        "inodesUsed": fs.inodes.saturating_sub(fs.inodes_free),
    })
}
