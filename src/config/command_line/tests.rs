use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use super::*;
use crate::config::flags::is_ignored_field;
use crate::config::setting::Pairs;

fn parse(words: &[&str]) -> Result<(Command, Box<Flags>), String> {
    super::parse(words.iter().map(OsString::from))
}

fn pairs(pairs: &[(&str, &str)]) -> Pairs {
    let pair = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
    pairs.iter().map(pair).collect()
}

#[test]
fn the_last_value_of_a_flag_is_used_but_maps_paths_and_conditions_accumulate() {
    let values = Flags::of(&[
        "--port=1",
        "--node-ip=1",
        "--node-labels=a = 1 , b = 1 ,,c",
        "--register-with-taints=gone:NoSchedule",
        "--eviction-hard=a<1,b<2",
        "--ready-when-exists=/a",
        "--node-condition=A=/a",
        "--port=2",
        "--node-ip=2",
        "--node-labels=b=2",
        "--register-with-taints=a:NoSchedule",
        "--eviction-hard=",
        "--eviction_hard= b < 3 ,c<4",
        "--ready-when-exists=/b",
        "--node-condition=B=/b",
    ])
    .values;
    assert_eq!((values.config.node.port, values.node_ip.as_str()), (2, "2"));
    assert_eq!(values.config.node.labels, pairs(&[("a", "1"), ("b", "2"), ("c", "")]));
    assert_eq!(values.config.node.taints.len(), 1);
    assert_eq!(values.eviction_hard, Some(pairs(&[("a", "1"), ("b", "3"), ("c", "4")])));
    assert_eq!(values.ready_when_exists, [PathBuf::from("/a"), "/b".into()]);
    assert_eq!(values.node_conditions, ["A=/a", "B=/b"]);
}

#[test]
fn the_help_is_as_recorded() {
    let all = usage(true);
    assert!(all.lines().all(|line| line.len() <= 100), "{all}");
    support::golden("help.txt", &usage(false));
    support::golden("help-all.txt", &all);
}

/// 24 to 40 lines are a screen.
#[test]
fn the_short_help_fits_a_screen_and_has_the_commands_and_ten_flags() {
    let short = usage(false);
    let lines = short.lines().count();
    assert!((24..=40).contains(&lines), "{lines} lines:\n{short}");
    let flags: Vec<&str> = short.lines().filter(|line| line.starts_with("  -")).collect();
    assert_eq!(flags.len(), 10 + 1, "{short}");
    assert_eq!(flags[10], "  --version, --help");
    let all = usage(true);
    let missing = flags.iter().find(|line| !all.contains(*line));
    assert_eq!(missing, None);
}

#[test]
fn the_value_of_a_switch_is_optional() {
    for (words, want) in [
        (&["--register-node"][..], true),
        (&["--register-node=false", "--register-node"], true),
        (&["--register-node", "--port=1"], true),
        (&["--register-node", "false"], false),
        (&["--register-node=0"], false),
        (&["--register-node=F"], false),
        (&["--register-node=T"], true),
        (&["--register-node=1"], true),
        (&["--register-node=True"], true),
    ] {
        assert_eq!(Flags::of(words).values.config.node.register, want, "{words:?}");
    }
}

#[test]
fn each_command_is_recognized() {
    for (words, want) in [
        (&["--port=1"][..], Command::Run),
        (&["inspect", "--port=1"], Command::Inspect),
        (&["--port", "1", "inspect"], Command::Inspect),
        (&["--port=1", "check"], Command::Check),
        (&["runtime", "--port=1"], Command::Runtime),
        (&["serve", "--port=1"], Command::Serve),
        (&["logs"], Command::Logs),
        (&["--version"], Command::Version),
        (&["--port=1", "--help"], Command::Help { all: false }),
        (&["-h"], Command::Help { all: false }),
        (&["--help", "--all"], Command::Help { all: true }),
        (&["check", "-h", "--all"], Command::Help { all: true }),
    ] {
        let (command, flags) = parse(words).unwrap();
        assert_eq!(command, want, "{words:?}");
        if words.contains(&"--port=1") {
            assert_eq!(*flags, Flags::of(&["--port=1"]), "{words:?}");
        }
    }
}

#[test]
fn a_flag_of_one_letter_has_its_value_in_each_form() {
    for words in [&["-v4"][..], &["-v", "4"], &["-v=4"], &["--v", "4"]] {
        assert_eq!(Flags::of(words).values.verbosity, 4, "{words:?}");
    }
    for words in [&["inspect", "-o", "text"][..], &["-otext", "check"]] {
        let (_, flags) = parse(words).unwrap();
        assert_eq!(flags.values.output.as_deref(), Some("text"), "{words:?}");
    }
}

#[test]
fn an_invalid_command_line_is_one_error_line() {
    let output = "--output is for nodelet inspect and nodelet check";
    for (words, want) in [
        (&["--kubecfg=x"][..], "unknown flag: --kubecfg; see --help"),
        (&["--kubecfg", "x"], "unknown flag: --kubecfg; see --help"),
        (&["--no_such"], "unknown flag: --no-such; see --help"),
        (&["--=x"], "unknown flag: --; see --help"),
        (&["-x"], "unknown shorthand flag: -x; see --help"),
        (&["-kubeconfig=x"], "unknown shorthand flag: -k; see --help"),
        (&["start"], "unknown command \"start\"; see --help"),
        (&["lwxivu.2uczm8x4xi2v7hqd"], "unknown command \"…\"; see --help"),
        (&["--lwxivu.2uczm8x4xi2v7hqd"], "unknown flag: --…; see --help"),
        (&["--K10ab::node:s3cret=x"], "unknown flag: --…; see --help"),
        (&["inspect", "inspect"], "unknown command \"inspect\"; see --help"),
        (&["--", "--port=1"], "unknown command \"--port=1\"; see --help"),
        (&["--register-node", "maybe"], "unknown command \"maybe\"; see --help"),
        (&["--port=1", "--kubeconfig"], "flag needs an argument: --kubeconfig"),
        (&["--node_ip"], "flag needs an argument: --node-ip"),
        (&["-v"], "flag needs an argument: --v"),
        (&["--register-node=maybe"], "\"maybe\" for --register-node: write true or false"),
        (&["--register-node="], "\"\" for --register-node: write true or false"),
        (&["--port=4294967296"], "\"4294967296\" for --port: not a number"),
        (&["--max-pods", "many"], "\"many\" for --max-pods: not a number"),
        (&["--node-lease-duration-seconds=40s"], "\"40s\" for --node-lease-duration-seconds: "),
        (&["--v="], "\"\" for --v: not a number"),
        // `nodelet runtime` prints JSON alone, which an endpoint `file://` reads.
        (&["--output=json"], output),
        (&["runtime", "-o", "text"], output),
        (&["-ojson", "serve"], output),
        (&["inspect", "-o"], "flag needs an argument: --output"),
        (
            &["--eviction-hard=a=1"],
            "\"a=1\" for --eviction-hard: malformed pair, expect string<string",
        ),
        (&["--eviction-hard= "], "malformed pair, expect string<string"),
        (&["--system-reserved=cpu"], "malformed pair, expect string=string"),
        (&["--extended-resources=a/b<1"], "malformed pair, expect string=string"),
        (&["inspect", "check"], "unknown command \"check\"; see --help"),
    ] {
        let line = parse(words).unwrap_err();
        assert!(line.contains(want) && !line.contains('\n'), "{words:?}: {line}");
        assert!(!line.contains("s3cret") && !line.contains("2uczm8x4xi2v7hqd"), "{line}");
    }
    let bytes = OsString::from_vec(b"--node-ip=\xff".to_vec());
    assert_eq!(super::parse([bytes]), Err("--node-ip: not UTF-8".to_owned()));
}

/// A unit of a kubelet has values that nodelet cannot judge; the forms are those of pflag.
#[test]
fn an_ignored_flag_takes_any_value() {
    for (words, want) in [
        (&["--read-only-port=many", "--port=1"][..], Ok("read-only-port")),
        (&["--read-only-port", "--port=2", "--port=1"], Ok("read-only-port")),
        (&["--enforce_node_allocatable", "x", "--port=1"], Ok("enforce-node-allocatable")),
        (&["--runonce", "--port=1"], Ok("runonce")),
        // Of kubeadm's unit.
        (&["--pod-infra-container-image=pause:3.10", "--port=1"], Ok("pod-infra-container-image")),
        (&["--cgroup-driver", "systemd", "--port=1"], Ok("cgroup-driver")),
        (&["--fail-swap-on=false", "--port=1"], Ok("fail-swap-on")),
        // Of the line that an agent of k3s logs.
        (&["--containerd=/run/k3s/containerd/containerd.sock", "--port=1"], Ok("containerd")),
        (&["--storage_driver_password", "s3cret", "--port=1"], Ok("storage-driver-password")),
        (&["--runonce=maybe", "--port=1"], Ok("runonce")),
        (&["--runonce", "true", "--port=1"], Ok("runonce")),
        (&["--runonce", "maybe"], Err("unknown command \"maybe\"; see --help")),
        (&["--read-only-port"], Err("flag needs an argument: --read-only-port")),
    ] {
        let got = parse(words).map(|(_, flags)| *flags);
        let want = want
            .map_err(str::to_owned)
            .map(|name| Flags { ignored: vec![format!("--{name}")], ..Flags::of(&["--port=1"]) });
        assert_eq!(got, want, "{words:?}");
    }
}

/// The flags of cAdvisor that the kubelet has: `cmd/kubelet/app/options/globalflags_linux.go`.
#[test]
fn the_flags_of_cadvisor_are_ignored() {
    let with_a_value = "
        application_metrics_count_limit boot_id_file container_hints containerd
        containerd-namespace event_storage_age_limit event_storage_event_limit
        global_housekeeping_interval housekeeping_interval machine_id_file
        storage_driver_buffer_duration storage_driver_db storage_driver_host
        storage_driver_password storage_driver_table storage_driver_user";
    let switches = "enable_load_reader log_cadvisor_usage storage_driver_secure";
    for (names, takes_value) in [(with_a_value, true), (switches, false)] {
        for name in names.split_ascii_whitespace().map(|name| name.replace('_', "-")) {
            assert_eq!(super::takes_value(&name), Some(takes_value), "{name}");
        }
    }
}

#[test]
fn every_name_is_in_one_table_only() {
    for setting in SETTINGS {
        assert_eq!(ignored_flag(setting.flag), None, "{}", setting.flag);
        assert!(!is_ignored_field(setting.field), "{}", setting.field);
    }
}
