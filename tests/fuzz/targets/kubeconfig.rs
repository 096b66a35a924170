//! Kubeconfigs. Files that one names are looked for below a folder that does not exist.
#![no_main]

use std::path::Path;

use nodelet::kube::kubeconfig::Kubeconfig;

libfuzzer_sys::fuzz_target!(|text: &str| {
    let _ = Kubeconfig::parse(text, &[Path::new("/no/such/folder")]);
});
