//! Names, labels and taints of flags.
#![no_main]

use std::collections::BTreeMap;

use nodelet::kube::names;

libfuzzer_sys::fuzz_target!(|text: &str| {
    if let Ok(name) = names::node_name(text) {
        assert!(names::is_dns_subdomain(&name) && names::is_label_value(&name));
    }
    let mut labels = BTreeMap::new();
    names::parse_labels(text, &mut labels);
    let _ = names::check_node_labels(&labels);
    for taint in names::parse_taints(text).unwrap_or_default() {
        assert!(names::is_qualified_name(&taint.key));
    }
    let _ = names::is_extended_resource(text);
    let _ = nodelet::config::parse_ip(text);
});
