//! Kubeconfigs. Files that one names are looked for below a folder that does not exist.
#![no_main]

use std::path::Path;

use nodelet::credentials::kubeconfig;

libfuzzer_sys::fuzz_target!(|text: &str| {
    let _ = kubeconfig::parse(text, &[Path::new("/no/such/folder")]);
});
