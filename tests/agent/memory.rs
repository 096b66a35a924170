//! The memory of the release binary: of an agent, and of the port with as many connections as it
//! keeps.

use std::time::Duration;

use apidouble::{Double, Validity};
use nix::sys::statfs::{TMPFS_MAGIC, statfs};
use support::{Folder, eventually, skip};

use crate::common::board::{Board, binary};
use crate::common::budget::assert_within;
use crate::common::lease::renewals;
use crate::serve::{Client, Served, flags};

/// As many as the port keeps.
const CONNECTIONS: usize = 8;

/// Whether there is a release binary to measure.
fn is_release() -> bool {
    let is_release = std::env::var_os("NODELET").is_some();
    if !is_release {
        skip::optional("the memory of a release binary: NODELET is unset");
    }
    is_release
}

/// KiB that are resident, and those that no other process has.
fn used(board: &Board, what: &str) -> [usize; 2] {
    let used = ["Rss", "Anonymous"].map(|name| usize::try_from(board.kibibytes(name)).unwrap());
    println!("{what}: {} KiB resident, {} KiB of its own", used[0], used[1]);
    used
}

/// From a tmpfs, as in an initramfs: of another file system the page cache may have large folios.
fn assert_resident(name: &str, figure: usize) {
    if statfs(binary().as_os_str()).unwrap().filesystem_type() == TMPFS_MAGIC {
        assert_within(name, figure);
    } else {
        skip::optional("resident memory: NODELET is not on a tmpfs");
    }
}

#[test]
fn an_agent_fits_in() {
    if !is_release() {
        return;
    }
    let double = Double::start();
    let folder = Folder::new("memory");
    // As on a board that joined.
    let mut flags = flags(&double, &folder);
    flags.extend(["--rotate-certificates", "--node-lease-duration-seconds=8"].map(str::to_owned));
    flags.push(format!("--root-dir={}", folder.path().display()));
    let board = Board::start(&flags.iter().map(String::as_str).collect::<Vec<_>>());
    eventually("four renewals", Duration::from_secs(20), || {
        (renewals(&double).len() >= 4).then_some(())
    });
    let [resident, _] = used(&board, "after four renewals");
    assert_resident("resident_kibibytes", resident);
}

#[test]
fn eight_clients_with_certificates_fit_in() {
    if !is_release() {
        return;
    }
    let double = Double::start();
    let folder = Folder::new("serve-memory");
    let flags = flags(&double, &folder);
    let served = Served::start(&flags.iter().map(String::as_str).collect::<Vec<_>>());
    used(&served.board, "started");
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
    let [resident, own] = used(&served.board, "with eight connections");
    assert_within("serve_anonymous_kibibytes", own);
    assert_resident("serve_resident_kibibytes", resident);
}
