//! The memory of the process with as many connections as it keeps.

use apidouble::{Double, Validity};
use support::{Folder, skip};

use super::{Client, Served, flags};
use crate::common::budget::assert_within;

/// As many as the port keeps.
const CONNECTIONS: usize = 8;

#[test]
fn eight_clients_with_certificates_fit_in() {
    if std::env::var_os("NODELET").is_none() {
        return skip::optional("the memory of a release binary: NODELET is unset");
    }
    let double = Double::start();
    let folder = Folder::new("serve-memory");
    let flags = flags(&double, &folder);
    let served = Served::start(&flags.iter().map(String::as_str).collect::<Vec<_>>());
    let used = |what: &str| {
        let [resident, own] =
            ["Rss", "Anonymous"].map(|name| usize::try_from(served.board.kibibytes(name)).unwrap());
        println!("{what}: {resident} KiB resident, {own} KiB of its own");
        own
    };
    used("started");
    let scraper = double.authority().client("scraper", &["system:masters"], Validity::VALID);
    let mut clients: Vec<Client> =
        (0..CONNECTIONS).map(|_| Client::connect(served.port, Some(&scraper))).collect();
    for _ in 0..3 {
        for client in &mut clients {
            for path in ["/metrics/resource", "/metrics", "/stats/summary"] {
                assert_eq!(client.ask("GET", path, &[]).code, 200, "{path}");
            }
        }
    }
    // What of the file is resident is up to the kernel.
    assert_within("serve_anonymous_kibibytes", used("with eight connections"));
}
