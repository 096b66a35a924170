//! Cases of `pkg/kubelet/apis/config/validation/validation_test.go`
//! TestValidateKubeletConfiguration for the settings that are parsed here, from the command line if
//! there is a flag.
//!
//! Not applicable: the cases of the image garbage collector, iptables, OOM score, open files,
//! registry, CPU quota, topology and memory managers, logging, tracing, pod logs and image
//! verification (their fields are ignored), and of feature gates. TimeAdded, a wrong type and an
//! invalid taint are in `config/file/tests.rs`.

use super::*;
use crate::config::command_line::{self, Command};

fn flags(words: &[&str]) -> Flags {
    match command_line::parse(words.iter().map(Into::into)) {
        Ok(Command::Run(flags)) => *flags,
        other => panic!("{words:?}: {other:?}"),
    }
}

#[test]
fn valid_settings_are_accepted() {
    assert_eq!(check(&Flags::default()), Ok(()));
    for words in [
        &[
            "--node-status-max-images=-1",
            "--healthz-port=0",
            "--read-only-port=0",
        ][..],
        &["--port=1", "--healthz-port=65535", "--read-only-port=65535"],
        &["--enforce-node-allocatable=none", "--cgroups-per-qos=false"],
        &["--enforce-node-allocatable=", "--cgroups-per-qos=false"],
        &[
            "--enforce-node-allocatable=pods,system-reserved",
            "--enforce-node-allocatable=kube-reserved-compressible",
            "--system-reserved-cgroup=/system",
            "--kube-reserved-cgroup=/kube",
        ],
        &["--system-cgroups=/x", "--cgroup-root=/"],
        &["--lock-file=/x", "--exit-on-lock-contention"],
        &["--reserved-cpus=0-3,7", "--runonce=false"],
        &[
            "--node-status-update-frequency=10ms",
            "--node-status-report-frequency=1s",
            "--node-resync-frequency=1s",
        ],
    ] {
        assert_eq!(check(&flags(words)), Ok(()), "{words:?}");
    }
}

#[test]
fn each_error_has_the_kubelets_text() {
    let negative = "must not be a negative number";
    let inclusive = "must be between 1 and 65535, inclusive";
    let both = |a: &str| {
        format!(
            "both \"{a}\" and \"{a}-compressible\" cannot be specified together in \
             enforceNodeAllocatable (--enforce-node-allocatable)"
        )
    };
    let cgroup = |field: &str, flag: &str, key: &str| {
        format!(
            "{field}Cgroup ({flag}-cgroup) must be specified when \"{key}\" or \
             \"{key}-compressible\" included in enforceNodeAllocatable (--enforce-node-allocatable)"
        )
    };
    let system = cgroup("systemReserved", "--system-reserved", "system-reserved");
    let kube = cgroup("kubeReserved", "--kube-reserved", "kube-reserved");
    let with_cgroups = "can't use reservedSystemCPUs (--reserved-cpus) with systemReservedCgroup \
                        (--system-reserved-cgroup) or kubeReservedCgroup (--kube-reserved-cgroup)";
    for (words, want) in [
        (
            &["--node-lease-duration-seconds=-1"][..],
            "nodeLeaseDurationSeconds must be greater than 0",
        ),
        (
            &["--event-burst=-1"],
            &format!("eventBurst (--event-burst) -1 {negative}"),
        ),
        (
            &["--event-qps=-1"],
            &format!("eventRecordQPS (--event-qps) -1 {negative}"),
        ),
        (
            &["--healthz-port=65536"],
            &format!("healthzPort (--healthz-port) 65536 {inclusive}"),
        ),
        (
            &["--kube-api-burst=-1"],
            &format!("kubeAPIBurst (--kube-api-burst) -1 {negative}"),
        ),
        (
            &["--kube-api-qps=-1"],
            &format!("kubeAPIQPS (--kube-api-qps) -1 {negative}"),
        ),
        (
            &["--node-status-max-images=-2"],
            "nodeStatusMaxImages (--node-status-max-images) -2 must be -1 or greater",
        ),
        (
            &["--max-pods=-1"],
            &format!("maxPods (--max-pods) -1 {negative}"),
        ),
        (
            &["--pods-per-core=-1"],
            &format!("podsPerCore (--pods-per-core) -1 {negative}"),
        ),
        (
            &["--port=65536"],
            &format!("port (--port) 65536 {inclusive}"),
        ),
        (&["--port=0"], &format!("port (--port) 0 {inclusive}")),
        (
            &["--read-only-port=65536"],
            "readOnlyPort (--read-only-port) 65536 must be between 0 and 65535, inclusive",
        ),
        (
            &["--runonce"],
            "runOnce (--runOnce) true, Runonce mode has been deprecated and should not be set",
        ),
        (
            &["--system-cgroups=/x"],
            "systemCgroups (--system-cgroups) was specified and cgroupRoot (--cgroup-root) was \
             not specified",
        ),
        (
            &["--cgroups-per-qos=false"],
            "cgroupsPerQOS (--cgroups-per-qos) must be set to true when \"pods\" contained in \
             enforceNodeAllocatable (--enforce-node-allocatable)",
        ),
        (&["--enforce-node-allocatable=system-reserved"], &system),
        (
            &["--enforce-node-allocatable=system-reserved-compressible"],
            &system,
        ),
        (&["--enforce-node-allocatable=kube-reserved"], &kube),
        (
            &["--enforce-node-allocatable=kube-reserved-compressible"],
            &kube,
        ),
        (
            &[
                "--enforce-node-allocatable=kube-reserved,kube-reserved-compressible",
                "--kube-reserved-cgroup=/x",
            ],
            &both("kube-reserved"),
        ),
        (
            &[
                "--enforce-node-allocatable=system-reserved,system-reserved-compressible",
                "--system-reserved-cgroup=/x",
            ],
            &both("system-reserved"),
        ),
        (
            &["--enforce-node-allocatable=none,pods"],
            "enforceNodeAllocatable (--enforce-node-allocatable) may not contain additional \
             enforcements when \"none\" is specified",
        ),
        (
            &["--enforce-node-allocatable=pods,pods"],
            "duplicated enforcements \"pods\" in enforceNodeAllocatable \
             (--enforce-node-allocatable)",
        ),
        (
            &["--enforce-node-allocatable=invalid"],
            "option \"invalid\" specified for enforceNodeAllocatable \
             (--enforce-node-allocatable). Valid options are \"pods\", \"system-reserved\", \
             \"system-reserved-compressible\", \"kube-reserved\", \
             \"kube-reserved-compressible\" or \"none\"",
        ),
        (
            &["--reserved-cpus=0-1", "--system-reserved-cgroup=/x"],
            with_cgroups,
        ),
        (
            &["--reserved-cpus=0-1", "--kube-reserved-cgroup=/x"],
            with_cgroups,
        ),
        (
            &["--reserved-cpus=5-3"],
            "unable to parse reservedSystemCPUs (--reserved-cpus) 5-3, error: invalid range \
             \"5-3\" (5 > 3)",
        ),
        (
            &["--container-runtime-endpoint="],
            "the containerRuntimeEndpoint was not specified or empty",
        ),
        (
            &["--exit-on-lock-contention"],
            "cannot exit on lock file contention: no lock file specified",
        ),
        (
            &["--node-status-update-frequency=0"],
            "nodeStatusUpdateFrequency (--node-status-update-frequency) 0ns is too short; the \
             minimum is 10ms",
        ),
        (
            &["--node-status-update-frequency=9ms"],
            "nodeStatusUpdateFrequency (--node-status-update-frequency) 9ms is too short; the \
             minimum is 10ms",
        ),
        (
            &["--node-status-report-frequency=999ms"],
            "nodeStatusReportFrequency (--node-status-report-frequency) 999ms is too short; the \
             minimum is 1s",
        ),
        (
            &["--node-resync-frequency=1us"],
            "--node-resync-frequency 1µs is too short; the minimum is 1s",
        ),
    ] {
        assert_eq!(
            check(&flags(words)),
            Err(format!("invalid configuration: {want}")),
            "{words:?}"
        );
    }
}

#[test]
fn settings_without_a_flag_are_validated() {
    let faults = |set: fn(&mut Flags)| {
        let mut flags = Flags::default();
        set(&mut flags);
        check(&flags).unwrap_err()
    };
    let seconds = Duration::from_secs;
    assert_eq!(
        faults(|f| f.validated_only.swap_behavior = "invalid-behavior".to_owned()),
        "invalid configuration: memorySwap.swapBehavior \"invalid-behavior\" must be one of: \
         \"\", \"LimitedSwap\" or \"NoSwap\""
    );
    assert_eq!(
        faults(|f| {
            f.validated_only.shutdown_grace_period_critical_pods = Duration::from_secs(2);
            f.validated_only.shutdown_grace_period = Duration::from_secs(1);
        }),
        "invalid configuration: shutdownGracePeriodCriticalPods 2s must be <= \
         shutdownGracePeriod 1s"
    );
    assert_eq!(
        faults(|f| f.validated_only.shutdown_grace_period = Duration::from_millis(1)),
        "invalid configuration: shutdownGracePeriod 1ms must be either zero or otherwise >= 1 sec"
    );
    assert_eq!(
        faults(|f| {
            f.validated_only.shutdown_grace_period = Duration::from_secs(30);
            f.validated_only.shutdown_grace_period_critical_pods = Duration::from_millis(1);
        }),
        "invalid configuration: shutdownGracePeriodCriticalPods 1ms must be either zero or \
         otherwise >= 1 sec"
    );
    assert_eq!(
        faults(|f| {
            f.validated_only.shutdown_by_pod_priority = true;
            f.validated_only.shutdown_grace_period = Duration::from_secs(1);
        }),
        "invalid configuration: Cannot specify both shutdownGracePeriodByPodPriority and \
         shutdownGracePeriod at the same time"
    );
    let mut good = Flags::default();
    good.validated_only.shutdown_grace_period = seconds(1);
    good.validated_only.shutdown_grace_period_critical_pods = seconds(1);
    good.validated_only.swap_behavior = "NoSwap".to_owned();
    assert_eq!(check(&good), Ok(()));
}

#[test]
fn several_errors_are_one_line() {
    assert_eq!(
        check(&flags(&["--max-pods=-1", "--runonce", "--port=0"])),
        Err(
            "[invalid configuration: maxPods (--max-pods) -1 must not be a negative number, \
             invalid configuration: port (--port) 0 must be between 1 and 65535, inclusive, \
             invalid configuration: runOnce (--runOnce) true, Runonce mode has been deprecated \
             and should not be set]"
                .to_owned()
        )
    );
}
