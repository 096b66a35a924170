//! `cmd/kubelet/app/server_test.go` TestValueOfAllocatableResources, and the lists of
//! `k8s.io/utils/cpuset`. Not applicable: `reserved-cpus: … is not a subset of online-cpus`,
//! because the facts have the number of CPUs and not their ids.

use super::*;
use crate::config::flags::Flags;

/// `cpu 150m, memory 1Gi`
fn text(resources: &Resources) -> String {
    let items = resources.iter().map(|(k, v)| format!("{k} {v}"));
    items.collect::<Vec<_>>().join(", ")
}

#[test]
fn both_reservations_are_added() {
    for (words, want) in [
        (&[][..], ""),
        (&["--system-reserved=", "--kube-reserved="], ""),
        (
            &["--system-reserved=cpu=200m,memory=500Mi,ephemeral-storage=1Gi,pid=1000"],
            "cpu 200m, ephemeral-storage 1Gi, memory 500Mi, pid 1k",
        ),
        (
            &["--kube-reserved=cpu=50m,memory=1Gi", "--system-reserved=cpu=100m"],
            "cpu 150m, memory 1Gi",
        ),
        (&["--kube-reserved=memory=1Gi", "--system-reserved=memory=0"], "memory 1Gi"),
        // TestReservedCPUs: the list replaces cpu of both, and only cpu.
        (
            &[
                "--reserved-cpus=0-1,3",
                "--kube-reserved=cpu=50m,memory=1Gi",
                "--system-reserved=cpu=100m,memory=1Gi",
            ],
            "cpu 3, memory 2Gi",
        ),
        (&["--reserved-cpus=7"], "cpu 1"),
        (&["--reserved-cpus=1", "--kube-reserved=cpu=nonsense"], "cpu 1"),
    ] {
        assert_eq!(text(&declared(&Flags::of(words).values).unwrap()), want, "{words:?}");
    }
}

/// TestValueOfAllocatableResources: "kube -150G" and "system 15Ky"; its valid case is the third row
/// of `both_reservations_are_added`.
#[test]
fn test_value_of_allocatable_resources() {
    for (words, parts) in [
        ("--kube-reserved=cpu=200m,memory=-150G", ["\"memory\" cannot be negative", "-150G"]),
        ("--system-reserved=cpu=200m,memory=15Ky", ["\"15Ky\" for \"memory\"", "such as 100Mi"]),
        ("--system-reserved=storage=1Gi", ["cannot reserve", "\"storage\""]),
    ] {
        let line = declared(&Flags::of(&[words]).values).unwrap_err();
        assert!(line.starts_with(words.split_once("=").unwrap().0), "{line}");
        assert!(parts.iter().all(|part| line.contains(part)), "{line}");
    }
}

#[test]
fn the_cpus_of_a_list_are_counted() {
    for (list, want) in [
        ("", 0),
        ("5", 1),
        ("1-1", 1),
        ("0-3", 4),
        ("1,2,3", 3),
        ("0-3,2-5,9,9", 7),
        ("8,0-5,34,46-48,1", 11),
        ("5,0-9,3-12", 13),
        ("0-4294967295", 1 << 32),
    ] {
        assert_eq!(cpus(list), Ok(want), "{list}");
    }
    for bad in [",", "1,", ",1", "a", "1-", "-1", "1-2-3", "3-1", "0x1", " 1", "4294967296"] {
        assert!(cpus(bad).is_err(), "{bad}");
    }
}

#[test]
fn extended_resources_have_a_domain_and_a_whole_amount() {
    let extended = |text: &str| {
        let flag = format!("--extended-resources={text}");
        super::extended(&Flags::of(&[&flag]).values.extended_resources)
    };
    let good = extended("example.com/camera=1,test.com/radio=2000m,a.b/npu=0").unwrap();
    assert_eq!(text(&good), "a.b/npu 0, example.com/camera 1, test.com/radio 2");
    assert_eq!(extended(""), Ok(Resources::new()));
    for (text, quoted, word) in [
        ("memory=1Gi", "\"memory\"", "like example.com/camera"),
        ("kubernetes.io/x=1", "\"kubernetes.io/x\"", "like example.com/camera"),
        ("a.b/c=-1", "a.b/c: \"-1\"", "whole number of devices"),
        ("a.b/c=1500m", "a.b/c: \"1500m\"", "whole number of devices"),
        ("a.b/c=many", "a.b/c: \"many\"", "such as 100Mi"),
    ] {
        let line = extended(text).unwrap_err();
        assert!(line.starts_with("--extended-resources: "), "{line}");
        assert!(line.contains(quoted) && line.contains(word), "{line}");
    }
}
