//! Cases of `pkg/kubelet/eviction/helpers_test.go`.
//!
//! Not applicable: the copies of memory.available that TestParseThresholdConfig and
//! TestAddAllocatableThresholds expect for "pods" (there is no cgroup of pods to observe),
//! TestAddContainerFsThresholds (containerfs is not observed apart from nodefs),
//! TestCompareThresholdValue (a derived `PartialEq`), and the cases about pods. The observation of
//! signals is tested in `node/eviction`.

use super::*;

/// A name without a dot is that of an amount that is available.
fn statements(text: &str) -> Pairs {
    let pairs = text.split(',').filter_map(|item| item.split_once('='));
    let signal = |name: &str| match name {
        "memory" | "nodefs" | "imagefs" | "pid" | "containerfs" | "allocatableMemory" => {
            format!("{name}.available")
        }
        _ => name.to_owned(),
    };
    pairs.map(|(k, v)| (signal(k), v.to_owned())).collect()
}

fn parsed(hard: &str, soft: &str, grace: &str, reclaim: &str) -> Result<Vec<Threshold>, String> {
    parse(&statements(hard), &statements(soft), &statements(grace), &statements(reclaim))
        .map(|both| both.concat())
}

fn q(text: &str) -> Amount {
    Amount::Quantity(text.parse().unwrap())
}

fn threshold(signal: Signal, amount: Amount, grace: u64, reclaim: Option<Amount>) -> Threshold {
    Threshold {
        grace_period: Duration::from_secs(grace),
        minimum_reclaim: reclaim,
        ..Threshold::hard(signal, amount)
    }
}

/// TestParseThresholdConfig, valid cases.
#[test]
fn test_parse_threshold_config() {
    use Amount::Percentage as P;
    use Signal::{
        ImagefsAvailable as Image, ImagefsInodesFree as ImageInodes, MemoryAvailable as Memory,
        NodefsAvailable as Node, NodefsInodesFree as NodeInodes, PidAvailable as Pid,
    };
    let some = |text: &str| Some(q(text));
    for (name, [hard, soft, grace, reclaim], want) in [
        ("no values", [""; 4], vec![]),
        (
            "memory, hard and soft",
            ["memory=150Mi", "memory=300Mi", "memory=30s", "memory=0"],
            vec![
                threshold(Memory, q("150Mi"), 0, some("0")),
                threshold(Memory, q("300Mi"), 30, some("0")),
            ],
        ),
        (
            "memory in percent",
            ["memory=10%", "memory=30%", "memory=30s", "memory=5%"],
            vec![
                threshold(Memory, P(0.1), 0, Some(P(0.05))),
                threshold(Memory, P(0.3), 30, Some(P(0.05))),
            ],
        ),
        (
            "disk in percent",
            [
                "imagefs=15%,nodefs=10.5%",
                "imagefs=30%,nodefs=20.5%",
                "imagefs=30s,nodefs=30s",
                "imagefs=10%,nodefs=5%",
            ],
            vec![
                threshold(Image, P(0.15), 0, Some(P(0.1))),
                threshold(Node, P(10.5 / 100.0), 0, Some(P(0.05))),
                threshold(Image, P(0.3), 30, Some(P(0.1))),
                threshold(Node, P(20.5 / 100.0), 30, Some(P(0.05))),
            ],
        ),
        ("disable via 0%, without grace", ["memory=0%", "memory=0%", "", ""], vec![]),
        ("disable via 100%", ["memory=100%", "memory=100%", "", ""], vec![]),
        (
            "0.0% and 100.0% do not disable",
            ["memory=0.0%,pid=100.0%", "", "", ""],
            vec![threshold(Memory, P(0.0), 0, None), threshold(Pid, P(1.0), 0, None)],
        ),
        (
            "any number of percent signs",
            ["memory=5%%", "", "", ""],
            vec![threshold(Memory, P(0.05), 0, None)],
        ),
        (
            "a grace period of zero, and one without a threshold",
            ["", "pid=10", "pid=0,nodefs=1m30s", ""],
            vec![threshold(Pid, q("10"), 0, None)],
        ),
        (
            "signals without observation are ignored",
            [
                "containerfs=10%,allocatableMemory=1Gi,memory=1",
                "containerfs.inodesFree=5",
                "containerfs.inodesFree=1s",
                "containerfs=1",
            ],
            vec![threshold(Memory, q("1"), 0, None)],
        ),
    ] {
        assert_eq!(parsed(hard, soft, grace, reclaim), Ok(want), "{name}");
    }
    for (of, image, node) in [("available", Image, Node), ("inodesFree", ImageInodes, NodeInodes)] {
        let both = |a: &str, b: &str| format!("imagefs.{of}={a},nodefs.{of}={b}");
        let want = vec![
            threshold(image, q("150Mi"), 0, some("2Gi")),
            threshold(node, q("100Mi"), 0, some("1Gi")),
            threshold(image, q("300Mi"), 30, some("2Gi")),
            threshold(node, q("200Mi"), 30, some("1Gi")),
        ];
        let (hard, soft) = (both("150Mi", "100Mi"), both("300Mi", "200Mi"));
        assert_eq!(
            parsed(&hard, &soft, &both("30s", "30s"), &both("2Gi", "1Gi")),
            Ok(want),
            "{of}"
        );
    }
}

/// TestParsePercentage, and TestParseThresholdConfig, errors: signal mem.available or invalid.foo;
/// hard -150Mi, -15%, 150%, 10..5% or empty; soft -150Mi or without grace; grace -30s or 30mins;
/// reclaim -300Mi, -15%, 10..5% or empty.
#[test]
fn test_parse_threshold_config_errors() {
    let memory = |value: &str| format!("memory.available={value}");
    let refused = |result: Result<Vec<Threshold>, String>, parts: &[&str]| {
        let line = result.unwrap_err();
        assert!(parts.iter().all(|part| line.contains(part)), "{line}\nlacks one of {parts:?}");
    };
    let (percent, number) = ("like 10%", "such as 100Mi");
    for (text, word) in [
        ("-150Mi", "must be positive"),
        ("0", "must be positive"),
        ("-15%", ">= 0%"),
        ("150%", "<= 100%"),
        ("1e999%", "<= 100%"),
        ("", number),
        ("10..5%", percent),
        ("blah%", percent),
        ("12%345%", percent),
        ("12%345", number),
        ("%", percent),
        ("NaN%", percent),
        ("inf%", percent),
    ] {
        let parts = ["memory.available", text, word];
        refused(parsed(&memory(text), "", "", ""), &parts);
        refused(parsed("", &memory(text), &memory("1s"), ""), &parts);
    }
    for (text, word) in [
        ("-300Mi", "negative eviction minimum reclaim"),
        ("", number),
        ("-15%", "minimum reclaim memory.available must be positive: -15%"),
        ("0%", "minimum reclaim memory.available must be positive: 0%"),
        ("10..5%", percent),
    ] {
        refused(parsed("", "", "", &memory(text)), &["memory.available", word]);
    }
    for (text, word) in [
        ("-30s", "must be a positive value"),
        ("30mins", "like 10s"),
        ("-30", "like 10s"),
        ("30", "like 10s"),
    ] {
        let soft = memory("150Mi");
        refused(parsed("", &soft, &memory(text), ""), &["grace period", text, word]);
    }
    let soft = "memory.available=150Mi";
    let parts = ["grace period must be specified", "memory.available"];
    refused(parsed("", soft, "nodefs.available=1s", ""), &parts);
    for (name, value) in
        [("mem.available", "30s"), ("invalid.foo", "150Mi"), ("Memory.available", "1"), ("", "1")]
    {
        let one = format!("memory.available=1Gi,{name}={value}");
        let want = Err(format!("unsupported eviction signal {name}"));
        let grace = format!("memory.available=1s,{name}=30s");
        assert_eq!(parsed(&one, "", "", ""), want);
        assert_eq!(parsed("", &one, "memory.available=1s", ""), want);
        assert_eq!(parsed("", "", &grace, ""), want);
        assert_eq!(parsed("", "", "", &one), want);
    }
}

#[test]
fn the_default_thresholds_are_the_kubelets() {
    let none = Pairs::new();
    let [got, soft] = parse(&defaults(), &none, &none, &none).unwrap();
    assert_eq!(soft, []);
    let bytes = Amount::Quantity(Quantity::bytes(100 << 20));
    let share = |signal, share| Threshold::hard(signal, Amount::Percentage(share));
    let want = [
        share(Signal::ImagefsAvailable, 0.15),
        share(Signal::ImagefsInodesFree, 0.05),
        Threshold::hard(Signal::MemoryAvailable, bytes),
        share(Signal::NodefsAvailable, 0.10),
        share(Signal::NodefsInodesFree, 0.05),
    ];
    assert_eq!(got, want);
}
