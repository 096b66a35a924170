//! `/logs/`: from a client to the program that stands in for journalctl, and back.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};

use apidouble::Double;
use support::{Folder, eventually, skip};

use super::{Client, SOON, Served, flags};
use crate::logs::{journalctl, logs};

/// `nodelet serve` beside a `nodelet-logs.socket`.
struct Site {
    served: Served,
    /// What was started for the connections.
    children: Arc<Mutex<Vec<Child>>>,
    _double: Double,
    _folder: Folder,
}

impl Site {
    fn new(name: &str, script: &str) -> Self {
        let double = Double::builder().token("admin", "admin", &["system:masters"]).start();
        let folder = Folder::new(name);
        journalctl(&folder, script);
        std::fs::create_dir(folder.path().join("run")).unwrap();
        let socket = UnixListener::bind(folder.path().join("run/nodelet-logs.sock")).unwrap();
        let mut flags = flags(&double, &folder);
        flags.push(format!("--host-root={}", folder.path().display()));
        flags.push("--enable-system-log-query".to_owned());
        let served = Served::start(&flags);
        let children = Arc::<Mutex<Vec<Child>>>::default();
        let (all, path) = (children.clone(), folder.path().to_owned());
        // As systemd with Accept=yes.
        std::thread::spawn(move || {
            for stream in socket.incoming() {
                let stream = OwnedFd::from(stream.unwrap());
                let mut command = logs(&path);
                command.stdin(Stdio::from(stream.try_clone().unwrap())).stdout(Stdio::from(stream));
                all.lock().unwrap().push(command.spawn().unwrap());
            }
        });
        Self { served, children, _double: double, _folder: folder }
    }

    fn ask(&self, path: &str) -> super::Reply {
        self.served.ask_with("admin", path)
    }

    /// Waits for the end of all that was started.
    fn ended(&self) -> usize {
        eventually("the end of the programs", SOON, || {
            let mut children = self.children.lock().unwrap();
            let is_over = |child: &mut Child| child.try_wait().unwrap().is_some();
            children.iter_mut().all(is_over).then_some(children.len())
        })
    }
}

#[test]
fn a_client_reads_the_journal_of_a_unit() {
    if !skip::has_tool("perl") {
        return;
    }
    let site =
        Site::new("serve-journal", "print join(' ', @ARGV), qq(\\n); print STDERR qq(why\\n)");
    let reply = site.ask("/logs/?query=nodelet&tailLines=2");
    let text = "--utc --no-pager --output=short-precise --lines=2 --unit=nodelet\n";
    let mut lines: Vec<&str> = reply.body.split_inclusive('\n').collect();
    lines.sort_unstable();
    assert_eq!((reply.code, &lines[..]), (200, &[text, "why\n"][..]));
    assert_eq!(reply.headers["content-type"], "text/plain;charset=UTF-8");
    assert_eq!(reply.headers["connection"], "close");
    let refused = site.ask("/logs/?query=nodelet&boot=1");
    let text = "boot: write 0 for this boot, -1 for the one before\n";
    assert_eq!((refused.code, refused.body.as_str()), (406, text));
    assert_eq!(site.served.ask(None, "/logs/?query=nodelet", &[]).code, 401);
    assert_eq!(site.ended(), 1, "nothing is started for a refusal");
}

/// Others are answered meanwhile.
#[test]
fn an_endless_journal_is_cut_and_nobody_else_waits_for_it() {
    if !skip::has_tool("perl") {
        return;
    }
    // Until the file is there, it says one line.
    let folder = Folder::new("serve-journal-go");
    let go = folder.path().join("go");
    let script = format!(
        "$| = 1; print qq(first\\n); sleep 1 until -e '{}'; print 'x' x 999, qq(\\n) while 1",
        go.display()
    );
    let site = Site::new("serve-journal-endless", &script);
    let port = site.served.port;
    let token = "Authorization: Bearer admin";
    let slow = std::thread::spawn(move || {
        Client::connect(port, None).ask("GET", "/logs/?query=nodelet", &[token])
    });
    eventually("the journal", SOON, || (!site.children.lock().unwrap().is_empty()).then_some(()));
    let second = site.ask("/logs/?query=nodelet");
    assert_eq!((second.code, second.headers["retry-after"].as_str()), (429, "1"));
    assert_eq!(site.ask("/pods").code, 200);
    std::fs::write(go, "").unwrap();
    let reply = slow.join().unwrap();
    assert_eq!(reply.code, 200);
    let (whole, end) = reply.body.split_at(1 << 20);
    assert!(whole.starts_with("first\nxxx"));
    assert!(end.starts_with("\nerror: cut after 1 MiB; ") && end.lines().count() == 2, "{end}");
    // By SIGPIPE; then there is room for the next one.
    assert_eq!(site.ended(), 1);
    assert!(site.ask("/logs/?query=nodelet").body.len() > 1 << 20);
}
