//! A token, a cluster-info and a bundle of CAs, before their server is proved.
#![no_main]

use nodelet::join::proof;
use nodelet::join::token::Token;
use nodelet::kube::cluster_info::{ClusterInfo, cluster};
use nodelet::kube::time::Wall;
use nodelet::kube::yaml;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Some(info) = ClusterInfo::parse(bytes) {
        let _ = info.signature("abcdef");
        if let Ok(document) = yaml::parse(&info.kubeconfig) {
            let _ = cluster(&document);
        }
    }
    let pin = proof::sha256(bytes);
    let _ = proof::pinned(bytes, &[pin], Wall::default());
    if let Ok(kept) = proof::covered(bytes, &pin) {
        assert!(proof::has_digest(bytes, &pin) && kept.starts_with("-----BEGIN CERTIFICATE-----"));
    }
    let _ = str::from_utf8(bytes).map(Token::parse);
});
