//! `/stats/summary`: the node's part of `kubelet/pkg/apis/stats/v1alpha1` Summary. There are no
//! pods.

use serde_json::{Map, Value, json};

use super::readings::Readings;
use crate::core::facts::FileSystem;
use crate::core::instant::Now;
use crate::host::usage::Traffic;
use crate::kube::time::Wall;

/// The interface whose traffic is the node's, by the kubelet's rule (`pkg/kubelet/stats/helper.go`).
const NODE_INTERFACE: &str = "eth0";

/// The summary. `is_short`: CPU, memory and swap alone. What cannot be read is left out; a time that
/// cannot be right is null.
pub(super) fn summary(readings: &mut Readings, is_short: bool, now: Now) -> String {
    let (usage, age) = readings.usage(now.mono);
    let time = |wall: Option<Wall>| wall.map(|wall| wall.time());
    let read = time(readings.wall(now).map(|wall| wall.before(age)));
    let mut node = Map::new();
    node.insert("nodeName".to_owned(), json!(readings.node_name));
    node.insert("startTime".to_owned(), json!(time(readings.booted(now))));
    if let Ok(cpu) = usage.cpu {
        let total = u64::try_from(cpu.as_nanos()).unwrap_or(u64::MAX);
        let mut cpu = json!({"time": read, "usageCoreNanoSeconds": total});
        if let (Some(rate), Some(cpu)) = (readings.nano_cores(), cpu.as_object_mut()) {
            cpu.insert("usageNanoCores".to_owned(), json!(rate));
        }
        node.insert("cpu".to_owned(), cpu);
    }
    if let (Ok(working_set), Ok(total)) = (usage.working_set_bytes, usage.memory_bytes) {
        let available = total.saturating_sub(working_set);
        let memory = json!({
            "time": read, "availableBytes": available, "workingSetBytes": working_set,
        });
        node.insert("memory".to_owned(), memory);
    }
    if let Ok((total, free)) = usage.swap_bytes {
        let swap = json!({
            "time": read,
            "swapAvailableBytes": free,
            "swapUsageBytes": total.saturating_sub(free),
        });
        node.insert("swap".to_owned(), swap);
    }
    if !is_short {
        let now = time(readings.wall(now));
        if let Ok(traffic) = readings.host.traffic() {
            node.insert("network".to_owned(), network(&traffic, &now));
        }
        if let Ok(fs) = readings.host.node_fs() {
            node.insert("fs".to_owned(), file_system(&fs, &now));
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
    if let Some(members) = network.as_object_mut() {
        members.insert("time".to_owned(), json!(time));
        let interfaces = traffic.iter().map(interface).collect();
        members.insert("interfaces".to_owned(), Value::Array(interfaces));
    }
    network
}

/// Space that is reserved for root counts as used.
fn file_system(fs: &FileSystem, time: &Option<String>) -> Value {
    json!({
        "time": time,
        "availableBytes": fs.available_bytes,
        "capacityBytes": fs.capacity_bytes,
        "usedBytes": fs.capacity_bytes.saturating_sub(fs.available_bytes),
        "inodesFree": fs.inodes_free,
        "inodes": fs.inodes,
        "inodesUsed": fs.inodes.saturating_sub(fs.inodes_free),
    })
}
