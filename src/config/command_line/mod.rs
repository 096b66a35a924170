//! The command line, with the kubelet's flags.
//!
//! Only the type of a value is checked here; `Config::new` validates it. As in the kubelet, `_` in
//! a name equals `-`, and `--flag=value` equals `--flag value`.

use std::ffi::OsString;

use lexopt::{Arg, Parser, ValueExt};

use crate::config::flags::{Flags, Kind, SETTINGS, Setting, Use};
use crate::config::ignored;
use crate::kube::names::parse_taints;
use crate::kube::time::parse_duration;

/// The command to run.
#[derive(Debug, PartialEq)]
pub enum Command {
    /// Register the Node and keep its status and Lease current.
    Run(Box<Flags>),
    /// Print the Node that `Run` would register, and exit.
    Inspect(Box<Flags>),
    /// Check the prerequisites of `Run`, and exit.
    Check(Box<Flags>),
    /// Look at the container runtime once, print what it tells, and exit.
    Runtime(Box<Flags>),
    /// `--version`.
    Version,
    /// `--help`.
    Help,
}

/// The text of `--help`.
pub const USAGE: &str = "\
nodelet registers this machine as a Node of a Kubernetes cluster. It runs no pods.

Usage:
  nodelet --kubeconfig FILE [flags]   register the Node, and keep its status and Lease current
  nodelet inspect [flags]             print the Node that would be registered
  nodelet check [flags]               check what a run needs; change nothing
  nodelet join ENDPOINT --token T     get a certificate, start, wait for Ready; see join --help
  nodelet reset                       remove what nodelet join wrote
  nodelet runtime [flags]             print what the container runtime tells, once, as JSON

Flags (those of the kubelet, except those marked *):
  --kubeconfig FILE                    address of the API server, and credentials
  --bootstrap-kubeconfig FILE          kubeconfig for requesting a certificate if --kubeconfig is
                                       missing or not valid; --kubeconfig is then written
  --cert-dir DIR                       certificates and keys (default pki in --root-dir)
  --rotate-certificates                renew the certificate at 70 to 90 % of its lifetime
  --k3s-supervisor URL *               k3s or rke2 server that renews it; set by join
  --k3s-supervisor-system-roots *      verify it with the CAs of the system; set by join
  --hostname-override NAME             name of the Node instead of the host name
  --node-ip IP[,IP]                    address of the Node; 0.0.0.0 or :: prefers a family
  --node-labels K=V,...                labels of the Node; can be repeated
  --register-node[=true|false]         create the Node if it does not exist (default true)
  --register-with-taints K=V:EFFECT,.. taints of a new Node
  --provider-id ID                     spec.providerID of a new Node
  --cloud-provider external            a cloud controller sets the addresses
  --root-dir DIR                       its file system is reported (default /var/lib/kubelet)
  --node-status-update-frequency D     how often the status is computed (default 10s)
  --node-status-report-frequency D *   how often an unchanged status is sent (default 5m)
  --node-resync-frequency D *          how often the Node is read; else only after conflicts and
                                       errors (default 0, never)
  --node-lease-duration-seconds N *    duration of the Lease; renewed at a quarter (default 40)
  --kubelet-version VERSION|server *   kubelet version to report (default the built-in one), or that
                                       of the API server
  --max-pods N                         pod capacity of the Node (default 0, with the taint
                                       nodelet/no-pods:NoSchedule and the labels of a guest)
  --reject-pods[=true|false] *         end pods that are bound to a Node without pod capacity
                                       (default true)
  --pods-per-core N                    limits --max-pods to N per core; 0 is no limit
  --port N                             kubelet port to report; nothing listens on it (default 10250)
  --enable-controller-attach-detach[=true|false]   set its annotation (default true)
  --eviction-hard S<V,...              thresholds of memory.available, nodefs.available,
                                       nodefs.inodesFree, imagefs.available, imagefs.inodesFree and
                                       pid.available, as quantity or percentage; empty is none
                                       (default memory.available<100Mi,nodefs.available<10%,
                                       nodefs.inodesFree<5%,imagefs.available<15%,imagefs.inodesFree<5%)
  --eviction-soft S<V,...              thresholds with a grace period
  --eviction-soft-grace-period S=D,... their grace periods
  --eviction-minimum-reclaim S=V,...   extra amount that ends the pressure
  --eviction-pressure-transition-period D   how long a pressure condition stays (default 5m)
  --system-reserved R=Q,...            cpu, memory, ephemeral-storage and pid reserved from pods
  --kube-reserved R=Q,...              the same; both are added
  --reserved-cpus LIST                 replaces cpu in both: 0-1,3 reserves three cpus
  --experimental-allocatable-ignore-eviction   hard thresholds reserve nothing
  --local-storage-capacity-isolation[=true|false]   report ephemeral-storage (default true)
  --extended-resources NAME=Q,... *    devices of the board: example.com/camera=1
  --config FILE                        KubeletConfiguration, YAML or JSON; flags override it
  --container-runtime-endpoint URL     unix://PATH: CRI of containerd or CRI-O; docker://PATH,
                                       podman://PATH or file://PATH *; none by default
  --image-service-endpoint URL         CRI socket of the images (default that of the runtime)
  --node-status-max-images N           images in the Node, largest first (default 10); -1 is all
  --event-qps N, --event-burst N       maximum events per second and at once (default 50, 100)
  --ready-when-exists PATH *           Ready is False until PATH exists; can be repeated
  --node-problem-detection LIST *      conditions about the board's health: problems (default, listed
                                       when True), all, none; TYPE,... restricts, -TYPE,... excludes
  --node-condition TYPE=PATH *         condition TYPE is True while PATH exists; can be repeated
  --host-root DIR *                    read /proc, /sys and /etc below DIR (default /)
  -o, --output json|text *             inspect: the Node as json (default), or as text like kubectl
                                       describe node; check: json, or text (default)
  -v, --v N                            log verbosity: 2 adds each request
  --version, --help

The other flags of the kubelet are accepted and ignored; the log names them.
";

/// Parses a command line without its program name.
pub fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Command, String> {
    parse_over(Flags::default(), args.into_iter().collect())
}

/// [`parse`] with the values of a configuration file instead of the defaults.
pub fn parse_over(flags: Flags, args: Vec<OsString>) -> Result<Command, String> {
    let mut parser = Parser::from_args(args);
    let mut flags = Box::new(flags);
    let mut given = Vec::new();
    let mut command: Option<fn(Box<Flags>) -> Command> = None;
    while let Some(arg) = parser.next().map_err(|e| e.to_string())? {
        let name = match arg {
            Arg::Long(name) => name.replace('_', "-"),
            Arg::Short('v') => "v".to_owned(),
            Arg::Short('o') => "output".to_owned(),
            Arg::Short('h') => "help".to_owned(),
            Arg::Short(other) => {
                return Err(format!("unknown shorthand flag: -{other}; see --help"));
            }
            Arg::Value(word) => {
                command = match (word.to_str(), command) {
                    (Some("inspect"), None) => Some(Command::Inspect),
                    (Some("check"), None) => Some(Command::Check),
                    (Some("runtime"), None) => Some(Command::Runtime),
                    (word, _) => {
                        let word = shown(word.unwrap_or_default());
                        return Err(format!("unknown command {word:?}; see --help"));
                    }
                };
                continue;
            }
        };
        match name.as_str() {
            "help" => return Ok(Command::Help),
            "version" => return Ok(Command::Version),
            _ => flags.set(&name, &mut given, &mut parser)?,
        }
    }
    match command.unwrap_or(Command::Run)(flags) {
        Command::Run(flags) | Command::Runtime(flags) if flags.output.is_some() => {
            Err("--output is for nodelet inspect and nodelet check".to_owned())
        }
        command => Ok(command),
    }
}

/// An unknown word, for an error. One with a dot or a colon may be a token at the wrong place.
pub fn shown(word: &str) -> &str {
    match word.contains(['.', ':']) {
        true => "…",
        false => word,
    }
}

/// Whether the flag `name` of a run needs a value; `None` if there is no such flag.
pub fn takes_value(name: &str) -> Option<bool> {
    if ignored::SWITCHES.contains(&name) {
        return Some(false);
    }
    if ignored::VALUES.contains(&name) {
        return Some(true);
    }
    setting(name).map(|setting| !matches!(setting.kind, Kind::Switch(_)))
}

/// The setting of the flag `name`. In the table, an empty name means "no flag".
fn setting(name: &str) -> Option<&'static Setting> {
    let mut settings = SETTINGS.iter();
    settings.find(|setting| setting.flag == name && !name.is_empty())
}

impl Flags {
    /// Sets the flag `name`. `given` has the flags that came before it on the command line.
    fn set(
        &mut self,
        name: &str,
        given: &mut Vec<&'static str>,
        parser: &mut Parser,
    ) -> Result<(), String> {
        if let Some(name) = ignored::SWITCHES.iter().find(|flag| **flag == name) {
            self.ignored.push(name);
            return switch(name, parser).map(drop);
        }
        if let Some(name) = ignored::VALUES.iter().find(|flag| **flag == name) {
            self.ignored.push(name);
            return value(name, parser).map(drop);
        }
        let Some(setting) = setting(name) else {
            return Err(format!("unknown flag: --{}; see --help", shown(name)));
        };
        match setting.usage {
            Use::Used => {}
            Use::Ignored => self.ignored.push(setting.flag),
            Use::Unimplemented => self.not_yet.push(setting.flag),
        }
        let first = !given.contains(&setting.flag);
        given.push(setting.flag);
        match setting.kind {
            Kind::Text(set) => set(self, text(name, parser)?),
            Kind::Path(set) => set(self, value(name, parser)?.into()),
            Kind::Switch(set) => set(self, switch(name, parser)?),
            Kind::Number(set) | Kind::NumberOrZero(set) => set(self, number(name, parser)?),
            Kind::Period(set) => {
                let period = parse_duration(&text(name, parser)?);
                set(self, period.map_err(|e| format!("--{name}: {e}"))?);
            }
            Kind::Taints(set) => {
                let taints = parse_taints(&text(name, parser)?);
                set(self, taints.map_err(|e| format!("--{name}: {e}"))?);
            }
            Kind::Pairs(separator, slot) => {
                let pairs = pairs(name, separator, &text(name, parser)?)?;
                let slot = slot(self);
                let before = slot.take().filter(|_| !first);
                let mut all = before.unwrap_or_default();
                all.extend(pairs);
                *slot = Some(all);
            }
            Kind::List(slot) => {
                let text = text(name, parser)?;
                let items = text.split(',').filter(|item| !item.is_empty());
                let slot = slot(self);
                let before = slot.take().filter(|_| !first);
                let items = items.map(str::to_owned);
                *slot = Some(before.into_iter().flatten().chain(items).collect());
            }
        }
        Ok(())
    }
}

/// `k=v,k2=v2`, with `separator` instead of `=`; empty items are skipped.
fn pairs(name: &str, separator: char, text: &str) -> Result<Vec<(String, String)>, String> {
    let pair = |item: &str| {
        let (key, value) = item.split_once(separator).ok_or_else(|| {
            format!(
                "invalid argument {text:?} for --{name}: malformed pair, expect \
                 string{separator}string"
            )
        })?;
        Ok((key.trim().to_owned(), value.trim().to_owned()))
    };
    let items = text.split(',').filter(|item| !item.is_empty());
    items.map(pair).collect()
}

fn value(name: &str, parser: &mut Parser) -> Result<OsString, String> {
    parser
        .value()
        .map_err(|_| format!("flag needs an argument: --{name}"))
}

fn text(name: &str, parser: &mut Parser) -> Result<String, String> {
    let value = value(name, parser)?;
    value.string().map_err(|_| format!("--{name}: not UTF-8"))
}

fn number<T: std::str::FromStr>(name: &str, parser: &mut Parser) -> Result<T, String> {
    let text = text(name, parser)?;
    text.parse()
        .map_err(|_| format!("invalid argument {text:?} for --{name}: not a number in its range"))
}

/// A flag without a value is true. The value follows `=`; a following argument is the value only if
/// it is `true` or `false`.
fn switch(name: &str, parser: &mut Parser) -> Result<bool, String> {
    let value = match parser.optional_value() {
        Some(value) => value,
        None => {
            let next = parser
                .try_raw_args()
                .and_then(|mut args| args.next_if(|word| word == "true" || word == "false"));
            match next {
                Some(word) => word,
                None => return Ok(true),
            }
        }
    };
    match value.to_str() {
        Some("true" | "t" | "T" | "TRUE" | "True" | "1") => Ok(true),
        Some("false" | "f" | "F" | "FALSE" | "False" | "0") => Ok(false),
        _ => Err(format!(
            "invalid argument {value:?} for --{name}: write true or false"
        )),
    }
}

#[cfg(test)]
mod tests;
