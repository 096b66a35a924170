//! What others write to the cluster.

use super::{ASKED, Class, MOMENT};

pub(super) const CLASSES: &[Class] = &[
    Class { name: "node-deleted", begin: |w, _| w.delete("nodes/pi"), ..MOMENT },
    Class { name: "lease-deleted", begin: |w, _| w.delete("leases/pi"), ..MOMENT },
    Class { name: "node-written", begin: |w, s| w.write_to_node(s.size), sizes: &[0, 6], ..MOMENT },
    Class { name: "writes-often", ..ASKED },
    Class { name: "condition-written", begin: |w, _| w.write_condition(), ..MOMENT },
    Class { name: "writes-race", ..ASKED },
    Class { name: "lease-contested", begin: |w, _| w.contest_lease(), ..ASKED },
    Class { name: "lease-written", begin: |w, _| w.write_to_lease(), ..MOMENT },
    Class { name: "etcd-backup", begin: |w, _| w.back_up(), end: |w, _| w.restore(), ..ASKED },
];
