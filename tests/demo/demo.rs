//! The agent on this machine: `cargo run --release --example demo`.
//!
//! Starts the API double on loopback and the agent as a process of its own, shows
//! the Node as `kubectl get nodes -o wide` would while it becomes Ready, then its
//! Lease ticking. With `--stay` it goes on until Ctrl-C, so that `kubectl` can be
//! tried with the kubeconfig that it prints.
#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::disallowed_methods)]

use std::process::{Command, ExitCode};
use std::thread::sleep;
use std::time::{Duration, Instant};

use apidouble::Double;
use support::Folder;

fn main() -> ExitCode {
    // The agent is this same binary under another first argument: nothing else has
    // to be built.
    let mut args = std::env::args_os().skip(1).peekable();
    if args.next_if(|arg| arg == "nodelet").is_some() {
        return nodelet::cli::main(args);
    }
    let stay = args.next().is_some_and(|arg| arg == "--stay");

    let double = Double::builder().lifecycle(Duration::from_secs(50)).start();
    let folder = Folder::new("demo");
    let admin = folder.write("admin.conf", double.kubeconfig_admin());

    let name = "demo-board";
    let kubelet = folder.write("kubelet.conf", double.kubeconfig_for_node(name));
    println!("API double at {}; the agent registers this machine as {name}\n", double.url());
    println!("$ kubectl get nodes -o wide\n{}", double.print_nodes());

    let start = Instant::now();
    let mut agent = Command::new(std::env::current_exe().expect("this binary"))
        .arg("nodelet")
        .arg(format!("--kubeconfig={}", kubelet.display()))
        .args(["--hostname-override", name, "--max-pods=0"])
        .spawn()
        .expect("the agent as a process");
    while double.get(&format!("nodes/{name}")).is_none() && start.elapsed().as_secs() < 10 {
        sleep(Duration::from_millis(5));
    }
    println!("\n$ kubectl get nodes -o wide      # {} ms later", start.elapsed().as_millis());
    println!("{}", double.print_nodes());

    if stay {
        println!(
            "try it, until Ctrl-C:\n$ kubectl --kubeconfig {} describe node {name}\n",
            admin.display()
        )
    } else {
        println!("to try kubectl meanwhile, add:  -- --stay\n")
    }
    println!(
        "$ kubectl get lease -n kube-node-lease {name} -o jsonpath={{.spec.renewTime}}    # again and again"
    );
    let mut last = String::new();
    let mut seen = 0;
    while (stay || seen < 3)
        && start.elapsed() < Duration::from_secs(if stay { 86_400 } else { 60 })
    {
        let lease = double.get(&format!("leases/{name}")).unwrap_or_default();
        let renewed = lease["spec"]["renewTime"].as_str().unwrap_or_default().to_owned();
        if renewed != last {
            println!("{renewed}");
            last = renewed;
            seen += 1;
        }
        sleep(Duration::from_millis(50));
    }

    let _ = agent.kill();
    let _ = agent.wait();
    if seen >= 3 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
