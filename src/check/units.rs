//! Which units a boot starts, by the links of systemctl(1): no program is run.

use crate::os::root::HostRoot;

/// What opens the kubelet's port.
pub(crate) const SERVE_SOCKET: &str = "nodelet-serve.socket";

/// Folders of units that a boot reads.
const UNITS: [&str; 3] = ["etc/systemd/system", "usr/lib/systemd/system", "lib/systemd/system"];

/// Whether a target wants the unit. The link leads to a file of the unit.
pub(crate) fn is_enabled(root: &HostRoot, unit: &str) -> bool {
    UNITS.iter().any(|folder| {
        let names = root.list(folder).unwrap_or_default();
        let mut wants = names.iter().filter(|n| n.ends_with(".wants") || n.ends_with(".requires"));
        wants.any(|wants| root.open(&format!("{folder}/{wants}/{unit}")).is_ok())
    })
}
