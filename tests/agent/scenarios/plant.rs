//! Nodes that run pods, and boards beside them: hollow kubelets and agents on a real control plane.

use std::time::Duration;

use serde_json::Value;

use super::{GRACE, settle};
use crate::common::api::status_of;
use crate::common::board::Board;
use crate::common::cluster::Cluster;
use crate::common::cluster::program::Program;

/// Three servers in three zones of two regions.
pub(super) const ZONED: [&str; 3] = [
    "topology.kubernetes.io/zone=a,topology.kubernetes.io/region=north",
    "topology.kubernetes.io/zone=b,topology.kubernetes.io/region=north",
    "topology.kubernetes.io/zone=c,topology.kubernetes.io/region=south",
];

pub(super) struct Plant {
    // The order of their ends.
    boards: Vec<(String, Board)>,
    servers: Vec<(String, Program)>,
    pub(super) cluster: Cluster,
}

impl Plant {
    /// One server with each of `labels`, and boards; all are Ready. `None`, and a skip, without a
    /// real control plane.
    pub(super) fn start(labels: &[&str], boards: usize) -> Option<Self> {
        let cluster = Cluster::start_with_pods(GRACE)?;
        let server = |(index, labels): (usize, &&str)| {
            let name = format!("server-{index}");
            let kubeconfig = cluster.kubeconfig(&name);
            let program = cluster.kubelet(&name, &kubeconfig, labels);
            (name, program)
        };
        let board = |index: usize| {
            let name = format!("board-{index}");
            let board = Board::fast(cluster.kubeconfig(&name), &name, &[]);
            (name, board)
        };
        let mut plant = Self {
            boards: (0..boards).map(board).collect(),
            servers: labels.iter().enumerate().map(server).collect(),
            cluster,
        };
        plant.await_all(&plant.servers(), "True");
        plant.await_all(&plant.boards(), "True");
        Some(plant)
    }

    pub(super) fn servers(&self) -> Vec<String> {
        self.servers.iter().map(|(name, _)| name.clone()).collect()
    }

    pub(super) fn boards(&self) -> Vec<String> {
        self.boards.iter().map(|(name, _)| name.clone()).collect()
    }

    /// The Nodes that run pods.
    pub(super) fn nodes(&self) -> Vec<Value> {
        let nodes = self.servers.iter().map(|(name, _)| self.cluster.node(name));
        nodes.map(|node| node.expect("a server")).collect()
    }

    /// The pods of a workload, dead ones as well.
    pub(super) fn pods(&self, app: &str) -> Vec<Value> {
        let path = format!("{}?labelSelector=app%3D{app}", super::PODS);
        self.cluster.list(&path)
    }

    /// Ends all boards without a word to the API server.
    pub(super) fn kill_boards(&mut self) {
        let names = self.boards();
        self.boards.clear();
        self.await_all(&names, "Unknown");
    }

    /// Ends the first `count` servers, without a word to the API server; returns their names.
    pub(super) fn kill_servers(&mut self, count: usize) -> Vec<String> {
        let killed: Vec<(String, Program)> = self.servers.drain(..count).collect();
        let names: Vec<String> = killed.iter().map(|(name, _)| name.clone()).collect();
        drop(killed);
        self.await_all(&names, "Unknown");
        names
    }

    /// Waits until these Nodes have this status of Ready; panics with the log of a server that
    /// ended.
    fn await_all(&mut self, names: &[String], status: &str) {
        settle(status, GRACE + Duration::from_secs(60), || {
            let mut servers = self.servers.iter_mut();
            if let Some(end) = servers.find_map(|(_, server)| server.ended()) {
                panic!("{status}: {end}");
            }
            for name in names {
                let node = self.cluster.node(name);
                let node = node.ok_or_else(|| format!("no Node {name}"))?;
                if status_of(&node, "Ready") != status {
                    return Err(format!("{name}: {}", node["status"]["conditions"]));
                }
            }
            Ok(())
        });
    }
}
